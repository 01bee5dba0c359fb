#include "cpu/inputs.h"

#include <algorithm>

#include "core/rounding.h"
#include "numerics/block_nvfp4.h"
#include "numerics/e2m1.h"
#include "numerics/fp8.h"

namespace sluice::cpu {
namespace {

QuantizeArgs arguments(const InputRounding& rounding, const InputRow& row) {
  QuantizeArgs q;
  q.rounding = rounding.rounding;
  q.x = row.x;
  q.from = row.from;
  q.cols = row.cols;
  q.factor = row.factor;
  q.scale = rounding.scale;
  q.scales = row.scales;
  q.block_scales = row.block_scales;
  return q;
}

}  // namespace

InputRounding input_rounding(Recipe recipe, float static_scale) {
  InputRounding r;
  r.quantized = true;
  switch (recipe) {
    case Recipe::fp8_tensor:
      r.rounding = static_scale != 0.0f ? Rounding::fp8_static : Rounding::fp8_token;
      r.scale = static_scale;
      r.token_scales = true;
      return r;
    case Recipe::fp8_block:
      r.rounding = Rounding::fp8_group;
      r.group_scales = true;
      return r;
    case Recipe::nvfp4_w4a4_cutedsl:
    case Recipe::nvfp4_w4a4_cutlass:
      r.rounding = Rounding::nvfp4;
      r.output_factor = static_scale != 0.0f ? static_scale : 1.0f;
      r.scale = 1.0f / r.output_factor;
      return r;
    case Recipe::mxfp4_w4a8:
      r.rounding = Rounding::mxfp8;
      return r;
    case Recipe::f32:
    case Recipe::bf16:
    case Recipe::nvfp4_w4a16:
    case Recipe::mxfp4_w4a16:
      break;
  }
  r.quantized = false;
  return r;
}

void quantize_row(const GemmKernels& kernels, const InputRounding& rounding, const InputRow& row, void* operands,
                  Element to) {
  QuantizeArgs q = arguments(rounding, row);
  q.out = operands;
  q.to = to;
  kernels.quantize(q);
}

void load_quantized_row(const QuantizedRows& rows, std::int64_t t, std::int64_t cols, Bf16* operands) {
  const auto* codes = static_cast<const std::uint8_t*>(rows.codes.data) + rows.codes.row_stride / 2 * t;
  const std::uint8_t* scales = rows.block_scales.row<std::uint8_t>(t);
  for (std::int64_t c = 0; c < cols; ++c) {
    const float scale = to_float(E4m3{scales[c / kNvfp4Block]});
    operands[c] = to_bf16(to_float(unpack_e2m1(codes[c / 2], c)) * scale);  // exact
  }
  std::fill(operands + cols, operands + rounded_up(cols, kStoredK), Bf16{});
}

void quantize_packed_row(const GemmKernels& kernels, const InputRounding& rounding, const InputRow& row,
                         const PackedRows& packed, std::int64_t i) {
  const BlockSplit split(packed.rows);
  std::int64_t b = 0;
  while (split.first(b + 1) <= i) ++b;
  QuantizeArgs q = arguments(rounding, row);
  q.out = packed.block(split, b) + (i - split.first(b)) * kSegmentK * element_bytes(packed.element);
  q.to = packed.element;
  q.segment_stride = split.tokens(b) * kSegmentK;
  kernels.quantize(q);
}

}  // namespace sluice::cpu
