#include "numerics/quant_matrix.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>

#include "core/error.h"
#include "numerics/e2m1.h"
#include "numerics/e8m0.h"
#include "numerics/fp8.h"

namespace sluice {
namespace {

std::int64_t block_index(std::int64_t position, std::int64_t block) {
  return block == kWholeExtent ? 0 : position / block;
}

float element_value(const QuantMatrix& matrix, std::int64_t code_row_bytes, std::int64_t r, std::int64_t c) {
  const std::uint8_t* row = matrix.codes.data() + r * code_row_bytes;
  if (matrix.info().element == DType::e2m1) return to_float(unpack_e2m1(row[c / 2], c));
  return to_float(E4m3{row[c]});
}

float scale_value(const QuantMatrix& matrix, std::int64_t scale_cols, std::int64_t r, std::int64_t c) {
  const BlockFormatInfo& info = matrix.info();
  if (!info.has_block_scale) return 1.0f;
  const std::int64_t index = block_index(r, info.block_rows) * scale_cols + block_index(c, info.block_cols);
  switch (info.scale) {
    case DType::e4m3:
      return to_float(E4m3{matrix.byte_scales[index]});
    case DType::e8m0:
      return to_float(E8m0{matrix.byte_scales[index]});
    default:
      return matrix.float_scales[index];
  }
}

}  // namespace

FloatView FloatView::block(std::int64_t first_row, std::int64_t first_col, std::int64_t max_rows,
                           std::int64_t max_cols) const {
  return {data + first_row * row_stride + first_col, std::min(max_rows, rows - first_row),
          std::min(max_cols, cols - first_col), row_stride};
}

std::span<std::uint8_t> QuantMatrix::code_row(std::int64_t r) {
  const std::int64_t width = layout().code_row_bytes;
  return std::span(codes).subspan(r * width, width);
}

std::span<std::uint8_t> QuantMatrix::byte_scale_row(std::int64_t r) {
  const std::int64_t width = layout().scale_cols;
  return std::span(byte_scales).subspan(r * width, width);
}

std::span<float> QuantMatrix::float_scale_row(std::int64_t r) {
  const std::int64_t width = layout().scale_cols;
  return std::span(float_scales).subspan(r * width, width);
}

QuantMatrix make_quant_matrix(BlockFormat format, std::int64_t rows, std::int64_t cols) {
  QuantMatrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  const BlockLayout layout = matrix.layout();
  const std::int64_t scales = layout.scale_rows * layout.scale_cols;
  matrix.codes.resize(rows * layout.code_row_bytes);
  if (matrix.info().scale == DType::f32) {
    matrix.float_scales.resize(scales);
  } else {
    matrix.byte_scales.resize(scales);
  }
  return matrix;
}

void dequantize_row(const QuantMatrix& matrix, std::int64_t r, std::span<float> out) {
  const BlockLayout layout = matrix.layout();
  for (std::int64_t c = 0; c < matrix.cols; ++c) {
    const float code = element_value(matrix, layout.code_row_bytes, r, c);
    out[c] = code * scale_value(matrix, layout.scale_cols, r, c) * matrix.tensor_scale;
  }
}

std::vector<float> dequantize(const QuantMatrix& matrix) {
  std::vector<float> out(matrix.rows * matrix.cols);
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    dequantize_row(matrix, r, std::span(out).subspan(r * matrix.cols, matrix.cols));
  }
  return out;
}

float clamp_infinity(float v) { return std::isinf(v) ? std::copysign(FLT_MAX, v) : v; }

float finite_amax(std::span<const float> values) {
  float amax = 0.0f;
  for (const float v : values) {
    if (!std::isnan(v)) amax = std::max(amax, std::fabs(clamp_infinity(v)));
  }
  return amax;
}

float finite_amax(const FloatView& values) {
  float amax = 0.0f;
  for (std::int64_t r = 0; r < values.rows; ++r) amax = std::max(amax, finite_amax(values.row(r)));
  return amax;
}

bool has_nan(std::span<const float> values) {
  return std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); });
}

void check_row_spans(BlockFormat format, std::size_t cols, std::size_t codes, std::size_t scales) {
  const BlockFormatInfo& info = block_format_info(format);
  const BlockLayout layout = block_layout(info, 1, static_cast<std::int64_t>(cols));
  const std::size_t want_codes = static_cast<std::size_t>(layout.code_row_bytes);
  const std::size_t want_scales = static_cast<std::size_t>(layout.scale_cols);
  if (codes == want_codes && scales == want_scales) return;
  fail(ErrorCode::usage,
       "cannot quantise a row of " + std::to_string(cols) + " columns to " + std::string(info.name) +
           ": got room for " + std::to_string(codes) + " code bytes and " + std::to_string(scales) + " scales",
       std::to_string(want_codes) + " and " + std::to_string(want_scales), "size the outputs with block_layout()");
}

}  // namespace sluice
