#include "numerics/block_fp8.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>

#include "core/error.h"

namespace sluice {
namespace {

constexpr std::int64_t kBlock = 128;

void check_scale(float scale) {
  if (std::isfinite(scale) && scale > 0.0f) return;
  fail(ErrorCode::bad_input, "cannot quantise to fp8 with the scale " + std::to_string(scale),
       "a finite decode multiplier above zero", "look at the input scale of this layer in the checkpoint");
}

}  // namespace

float fp8_floored_scale(float amax, float amax_floor) { return std::max(amax, amax_floor) / kE4m3Max; }

float fp8_scale(float amax) { return amax == 0.0f ? 1.0f : std::max(amax / kE4m3Max, FLT_MIN); }

E4m3 quantize_fp8_value(float value, float scale) { return to_e4m3(clamp_infinity(value) / scale); }

void quantize_fp8_row_with_scale(std::span<const float> row, float scale, std::span<std::uint8_t> codes) {
  check_row_spans(BlockFormat::fp8_tensor, row.size(), codes.size(), 0);
  check_scale(scale);
  for (std::size_t c = 0; c < row.size(); ++c) codes[c] = quantize_fp8_value(row[c], scale).bits;
}

void quantize_fp8_group_row(std::span<const float> row, std::span<std::uint8_t> codes, std::span<float> scales,
                            float amax_floor) {
  check_row_spans(BlockFormat::fp8_group, row.size(), codes.size(), scales.size());
  for (std::size_t group = 0; group < scales.size(); ++group) {
    const std::size_t first = group * kBlock;
    const std::size_t count = std::min<std::size_t>(kBlock, row.size() - first);
    scales[group] = fp8_floored_scale(finite_amax(row.subspan(first, count)), amax_floor);
    quantize_fp8_row_with_scale(row.subspan(first, count), scales[group], codes.subspan(first, count));
  }
}

QuantMatrix quantize_fp8_tensor(const FloatView& values) {
  QuantMatrix out = make_quant_matrix(BlockFormat::fp8_tensor, values.rows, values.cols);
  out.tensor_scale = fp8_scale(finite_amax(values));
  for (std::int64_t r = 0; r < values.rows; ++r) {
    quantize_fp8_row_with_scale(values.row(r), out.tensor_scale, out.code_row(r));
  }
  return out;
}

QuantMatrix quantize_fp8_rows(const FloatView& values) {
  QuantMatrix out = make_quant_matrix(BlockFormat::fp8_row, values.rows, values.cols);
  for (std::int64_t r = 0; r < values.rows && values.cols > 0; ++r) {
    out.float_scales[r] = fp8_scale(finite_amax(values.row(r)));
    quantize_fp8_row_with_scale(values.row(r), out.float_scales[r], out.code_row(r));
  }
  return out;
}

QuantMatrix quantize_fp8_groups(const FloatView& values, float amax_floor) {
  QuantMatrix out = make_quant_matrix(BlockFormat::fp8_group, values.rows, values.cols);
  for (std::int64_t r = 0; r < values.rows; ++r) {
    quantize_fp8_group_row(values.row(r), out.code_row(r), out.float_scale_row(r), amax_floor);
  }
  return out;
}

QuantMatrix quantize_fp8_blocks(const FloatView& values, float amax_floor) {
  QuantMatrix out = make_quant_matrix(BlockFormat::fp8_block, values.rows, values.cols);
  const BlockLayout layout = out.layout();
  for (std::int64_t i = 0; i < layout.scale_rows; ++i) {
    for (std::int64_t j = 0; j < layout.scale_cols; ++j) {
      const FloatView block = values.block(i * kBlock, j * kBlock, kBlock, kBlock);
      const float scale = fp8_floored_scale(finite_amax(block), amax_floor);
      out.float_scale_row(i)[j] = scale;
      for (std::int64_t r = 0; r < block.rows; ++r) {
        quantize_fp8_row_with_scale(block.row(r), scale, out.code_row(i * kBlock + r).subspan(j * kBlock, block.cols));
      }
    }
  }
  return out;
}

}  // namespace sluice
