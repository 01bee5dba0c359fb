#include <algorithm>
#include <cstring>
#include <string>

#include "core/error.h"
#include "cpu/panel_source.h"
#include "numerics/bf16.h"
#include "numerics/e8m0.h"

// Codes of a file into panels, and scales of rows and of large blocks; 4-bit codes are in panel_fp4.cc.
namespace sluice::cpu {
namespace {

float block_scale(const BlockScaleView& s, std::int64_t n, std::int64_t k) {
  const std::int64_t i = n / s.block_rows * s.row_stride + k / s.block_cols * s.col_stride;
  switch (s.dtype) {
    case DType::f32:
      return static_cast<const float*>(s.data)[i];
    case DType::bf16:
      return to_float(static_cast<const Bf16*>(s.data)[i]);
    case DType::e8m0:
      return to_float(static_cast<const E8m0*>(s.data)[i]);
    default:
      fail(ErrorCode::unsupported, "block scales of type " + std::string(dtype_name(s.dtype)), "f32, bf16 or e8m0");
  }
}

// A scale of each panel and group of columns, the product of file scale and tensor scale.
void pack_block_scales(const PanelLayout& layout, const Rows& rows, float tensor_scale, int panel, float* to) {
  const BlockScaleView& s = rows.w.block_scale;
  if (s.block_rows % kPanelRows != 0 || s.block_cols != kScaledK) {
    fail(ErrorCode::unsupported, "fp8 blocks of " + std::to_string(s.block_rows) + " x " + std::to_string(s.block_cols),
         "a multiple of 16 rows and 128 columns");
  }
  for (std::int64_t g = 0; g < layout.scale_groups(); ++g) {
    to[2 * g + panel] = rows.count > 0 ? block_scale(s, rows.first, g * kScaledK) * tensor_scale : 0.0f;
  }
}

// Zeros for rows and columns that don't exist.
void load_fp8(const Rows& rows, std::int64_t k, Block& block) {
  const MatrixView& c = rows.w.codes;
  const std::int64_t count = std::min<std::int64_t>(kStoredK, c.cols - k);
  std::memset(&block, 0, sizeof(block));
  for (std::int64_t r = 0; r < kPanelRows; ++r) {
    const auto* from = static_cast<const std::byte*>(c.data) + (rows.first + r) * c.row_stride + k * c.col_stride;
    for (std::int64_t i = 0; i < count && r < rows.count; ++i) block.rows[r][i] = from[i * c.col_stride];
  }
}

void pack_fp8(const PanelLayout& layout, const Rows& rows, int panel, const LineKernels& lines, std::byte* records) {
  const PanelCodes codes(rows);
  const bool all_there = rows.whole();
  for (std::int64_t k = 0; k < layout.cols; k += layout.segment_k()) {
    const Segment segment(layout, k);
    const SegmentTarget to = target_of(layout, k, 0, records).panel(panel);
    const std::int64_t whole = all_there ? segment.whole : 0;
    if (whole > 0) lines.fp8(codes.run(k, whole, to));
    for (std::int64_t i = whole; i < segment.records; ++i) {
      Block block;
      load_fp8(rows, k + i * kStoredK, block);
      lines.fp8(line_run(block, to.record(i)));
    }
  }
}

void pack_output_scales(const Rows& rows, float tensor_scale, float* to) {
  const BlockScaleView& s = rows.w.block_scale;
  const bool of_rows = rows.w.codes.dtype == DType::e4m3 && s.data != nullptr;
  for (std::int64_t r = 0; r < kPanelRows; ++r) {
    to[r] = of_rows && r < rows.count ? block_scale(s, rows.first + r, 0) * tensor_scale : tensor_scale;
  }
}

void check_fp8(const QuantTensor& w) {
  if (w.codes.dtype == DType::e4m3) return;
  fail(ErrorCode::unsupported, std::string(dtype_name(w.codes.dtype)) + " weights in an fp8 recipe", "e4m3");
}

}  // namespace

void pack_quantized_pair(const PanelLayout& layout, const PanelSource (&sources)[2], const LineKernels& lines,
                         const PairData& pair) {
  const Rows rows[2] = {Rows(sources[0]), Rows(sources[1])};
  for (int p = 0; p < 2; ++p) {
    const float tensor_scale = sources[p].tensor_scale;
    if (pair.output_scales != nullptr) pack_output_scales(rows[p], tensor_scale, pair.output_scales + p * kPanelRows);
    if (layout.format != Format::fp8) continue;
    check_fp8(rows[p].w);
    if (layout.scaled) pack_block_scales(layout, rows[p], tensor_scale, p, pair.block_scales);
    pack_fp8(layout, rows[p], p, lines, pair.records);
  }
  if (layout.format != Format::fp8) pack_fp4_pair(layout, rows, lines, pair);
}

}  // namespace sluice::cpu
