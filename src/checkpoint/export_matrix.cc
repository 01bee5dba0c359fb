#include "checkpoint/export_matrix.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "numerics/bf16.h"
#include "numerics/block_fp8.h"
#include "numerics/block_nvfp4.h"
#include "numerics/quant_matrix.h"

namespace sluice::ckpt {
namespace {

// Decoded rows [first, first + count).
std::vector<float> decode(const MatrixRows& matrix, std::int64_t first, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count * matrix.cols()));
  for (std::int64_t r = 0; r < count; ++r) {
    const MatrixRows::At at = matrix.at(first + r);
    decode_row(*at.weight, at.row, values.data() + r * matrix.cols());
  }
  return values;
}

bool scales_like(const QuantTensor& weight, const BlockFormatInfo& info) {
  const BlockScaleView& scale = weight.block_scale;
  if (weight.codes.dtype != info.element || weight.codes.col_stride != 1) return false;
  if (!info.has_block_scale) return scale.data == nullptr;
  if (scale.data == nullptr || (scale.col_stride != 1 && info.block_cols != kWholeExtent)) return false;
  const std::int64_t cols = weight.codes.cols;
  const bool same_cols =
      info.block_cols == kWholeExtent ? scale.block_cols >= cols : scale.block_cols == info.block_cols;
  return scale.block_rows == info.block_rows && same_cols && (scale.dtype == info.scale || info.scale == DType::f32);
}

bool part_has_format(const QuantTensor& weight, const ExportTarget& target) {
  const BlockFormatInfo& info = block_format_info(target.block_format());
  return scales_like(weight, info) && (info.has_tensor_scale || weight.tensor_scale == 1.0f);
}

std::vector<std::byte> bytes_of(std::span<const std::byte> data) { return {data.begin(), data.end()}; }

// One scale of a grid in the type of the file.
void append_scale(const BlockScaleView& scale, std::int64_t row, std::int64_t col, DType type,
                  std::vector<std::byte>& out) {
  const std::int64_t index = row * scale.row_stride + col * scale.col_stride;
  const auto* data = static_cast<const std::byte*>(scale.data);
  if (scale.dtype == type) {
    const std::int64_t bytes = dtype_bytes(type, 1);
    out.insert(out.end(), data + index * bytes, data + (index + 1) * bytes);
    return;
  }
  const BiasView element{data, scale.dtype, index + 1, 1};
  const float value = decode_bias(element, index);
  const auto raw = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), raw.begin(), raw.end());
}

// Codes and scales as they are. A band starts at a whole number of scale rows.
EncodedBand copy_band(const MatrixRows& matrix, const BlockFormatInfo& info, std::int64_t first, std::int64_t count) {
  EncodedBand band;
  const BlockLayout layout = block_layout(info, count, matrix.cols());
  for (std::int64_t r = 0; r < count; ++r) {
    const MatrixRows::At at = matrix.at(first + r);
    const MatrixView& codes = at.weight->codes;
    const auto* row = static_cast<const std::byte*>(codes.data) + dtype_bytes(codes.dtype, at.row * codes.row_stride);
    band.codes.insert(band.codes.end(), row, row + layout.code_row_bytes);
    if (!info.has_block_scale || r % info.block_rows != 0) continue;
    const BlockScaleView& scale = at.weight->block_scale;
    for (std::int64_t c = 0; c < layout.scale_cols; ++c) {
      append_scale(scale, at.row / scale.block_rows, c, info.scale, band.scales);
    }
  }
  return band;
}

QuantMatrix quantize_fp8_with_scale(const FloatView& values, float scale) {
  QuantMatrix out = make_quant_matrix(BlockFormat::fp8_tensor, values.rows, values.cols);
  for (std::int64_t r = 0; r < values.rows; ++r) quantize_fp8_row_with_scale(values.row(r), scale, out.code_row(r));
  return out;
}

QuantMatrix quantize(const FloatView& values, const ExportTarget& target, float tensor_scale) {
  switch (target.block_format()) {
    case BlockFormat::fp8_tensor:
      return quantize_fp8_with_scale(values, tensor_scale);
    case BlockFormat::fp8_row:
      return quantize_fp8_rows(values);
    case BlockFormat::fp8_block:
      return quantize_fp8_blocks(values);
    case BlockFormat::nvfp4:
      return quantize_nvfp4(values, 1.0f / tensor_scale);
    default:
      return quantize_mxfp4(values, target.mx_scale);
  }
}

}  // namespace

MatrixRows::At MatrixRows::at(std::int64_t row) const {
  switch (order) {
    case Order::interleaved:
      return {row % 2 == 0 ? &first : &second, row / 2};
    case Order::first_then_second:
      return row < first.codes.rows ? At{&first, row} : At{&second, row - first.codes.rows};
    case Order::single:
      break;
  }
  return {&first, row};
}

bool has_format(const MatrixRows& matrix, const ExportTarget& target) {
  if (target.is_plain() || !part_has_format(matrix.first, target)) return false;
  if (matrix.order == MatrixRows::Order::single) return true;
  // Scale rows of more than one row, and tensor scales, cannot be taken together.
  const BlockFormatInfo& info = block_format_info(target.block_format());
  return part_has_format(matrix.second, target) && info.block_rows == 1 && !info.has_tensor_scale;
}

float amax_of(const MatrixRows& matrix) {
  float amax = 0.0f;
  std::vector<float> row(static_cast<std::size_t>(matrix.cols()));
  for (std::int64_t r = 0; r < matrix.rows(); ++r) {
    const MatrixRows::At at = matrix.at(r);
    decode_row(*at.weight, at.row, row.data());
    amax = std::max(amax, finite_amax(row));
  }
  return amax;
}

EncodedBand encode_band(const MatrixRows& matrix, const ExportTarget& target, float tensor_scale, std::int64_t first,
                        std::int64_t count) {
  if (has_format(matrix, target)) {
    return copy_band(matrix, block_format_info(target.block_format()), first, count);
  }
  const std::vector<float> values = decode(matrix, first, count);
  EncodedBand band;
  if (target.is_plain()) {
    std::vector<Bf16> rounded;
    rounded.reserve(values.size());
    for (const float v : values) rounded.push_back(to_bf16(v));
    band.codes = bytes_of(std::as_bytes(std::span(rounded)));
    return band;
  }
  const QuantMatrix quantised = quantize({values.data(), count, matrix.cols(), matrix.cols()}, target, tensor_scale);
  band.codes = bytes_of(std::as_bytes(std::span(quantised.codes)));
  band.scales = quantised.byte_scales.empty() ? bytes_of(std::as_bytes(std::span(quantised.float_scales)))
                                              : bytes_of(std::as_bytes(std::span(quantised.byte_scales)));
  return band;
}

std::vector<std::byte> encode_transposed_bf16(const MatrixRows& matrix) {
  const std::int64_t rows = matrix.rows();
  const std::int64_t cols = matrix.cols();
  std::vector<Bf16> out(static_cast<std::size_t>(rows * cols));
  std::vector<float> row(static_cast<std::size_t>(cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    const MatrixRows::At at = matrix.at(r);
    decode_row(*at.weight, at.row, row.data());
    for (std::int64_t c = 0; c < cols; ++c) out[static_cast<std::size_t>(c * rows + r)] = to_bf16(row[c]);
  }
  return bytes_of(std::as_bytes(std::span(out)));
}

}  // namespace sluice::ckpt
