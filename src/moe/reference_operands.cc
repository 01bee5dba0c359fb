#include "moe/reference_operands.h"

#include <span>

#include "core/rounding.h"
#include "numerics/bf16.h"
#include "numerics/block_fp8.h"
#include "numerics/block_mx.h"
#include "numerics/block_nvfp4.h"
#include "numerics/e2m1.h"
#include "numerics/e8m0.h"
#include "numerics/fp8.h"

namespace sluice::reference {
namespace {

constexpr std::int64_t kFp8Group = 128;

template <class T>
T* take_or_null(Workspace& workspace, std::int64_t count) {
  return count > 0 ? workspace.take<T>(count) : nullptr;
}

template <class T>
T* advance(T* base, std::int64_t count) {
  return base == nullptr ? nullptr : base + count;
}

// Columns that share one of the scales of sums.
std::int64_t sum_scale_cols(RowFormat format, std::int64_t cols) {
  return format == RowFormat::fp8_group ? kFp8Group : cols;
}

struct RowSpans {
  std::span<const float> values;
  std::span<std::uint8_t> codes, block_scales;
  std::span<float> sum_scales;
};

RowSpans spans_of(const OperandRows& rows, std::int64_t i) {
  const RowExtents n = row_extents(rows.format, rows.cols);
  const auto span = [&](auto* base, std::int64_t extent) {
    return std::span(advance(base, i * extent), static_cast<std::size_t>(extent));
  };
  return {{rows.row(i), static_cast<std::size_t>(rows.cols)},
          span(rows.codes, n.code_bytes),
          span(rows.block_scales, n.block_scales),
          span(rows.sum_scales, n.sum_scales)};
}

}  // namespace

RowExtents row_extents(RowFormat format, std::int64_t cols) {
  switch (format) {
    case RowFormat::f32:
    case RowFormat::bf16:
      return {};
    case RowFormat::fp8_row:
      return {cols, 0, 1};
    case RowFormat::fp8_group:
      return {cols, 0, ceil_div(cols, kFp8Group)};
    case RowFormat::nvfp4:
      return {ceil_div(cols, 2), ceil_div(cols, kNvfp4Block), 1};
    case RowFormat::mxfp8:
      return {cols, ceil_div(cols, kMxBlock), 0};
  }
  return {};
}

OperandRows OperandRows::from(std::int64_t row) const {
  const RowExtents n = row_extents(format, cols);
  return {format,
          cols,
          values + row * cols,
          advance(codes, row * n.code_bytes),
          advance(block_scales, row * n.block_scales),
          advance(sum_scales, row * n.sum_scales)};
}

float OperandRows::sum_scale(std::int64_t i, std::int64_t c) const {
  if (sum_scales == nullptr) return 1.0f;
  return sum_scales[i * row_extents(format, cols).sum_scales + c / sum_scale_cols(format, cols)];
}

std::size_t operand_bytes(RowFormat format, std::int64_t count, std::int64_t cols) {
  const RowExtents n = row_extents(format, cols);
  const auto bytes = [&](std::int64_t extent, std::size_t size) {
    return Workspace::rounded_bytes(static_cast<std::size_t>(count * extent) * size);
  };
  return bytes(cols, sizeof(float)) + bytes(n.code_bytes, 1) + bytes(n.block_scales, 1) +
         bytes(n.sum_scales, sizeof(float));
}

OperandRows take_rows(RowFormat format, std::int64_t count, std::int64_t cols, Workspace& workspace) {
  const RowExtents n = row_extents(format, cols);
  return {format,
          cols,
          workspace.take<float>(count * cols),
          take_or_null<std::uint8_t>(workspace, count * n.code_bytes),
          take_or_null<std::uint8_t>(workspace, count * n.block_scales),
          take_or_null<float>(workspace, count * n.sum_scales)};
}

void encode_row(const OperandRows& rows, std::int64_t i, float static_scale) {
  const RowSpans row = spans_of(rows, i);
  switch (rows.format) {
    case RowFormat::f32:
      return;
    case RowFormat::bf16:
      for (std::int64_t c = 0; c < rows.cols; ++c) rows.row(i)[c] = round_to_bf16(rows.row(i)[c]);
      return;
    case RowFormat::fp8_row:
      row.sum_scales[0] = static_scale != 0.0f ? static_scale : fp8_scale(finite_amax(row.values));
      quantize_fp8_row_with_scale(row.values, row.sum_scales[0], row.codes);
      break;
    case RowFormat::fp8_group:
      quantize_fp8_group_row(row.values, row.codes, row.sum_scales);
      break;
    case RowFormat::nvfp4:
      row.sum_scales[0] = static_scale;
      quantize_nvfp4_row(row.values, 1.0f / static_scale, row.codes, row.block_scales);
      break;
    case RowFormat::mxfp8:
      quantize_mxfp8_row(row.values, row.codes, row.block_scales);
      break;
  }
  decode_operands(rows, i);
}

void decode_operands(const OperandRows& rows, std::int64_t i) {
  const RowSpans row = spans_of(rows, i);
  float* out = rows.row(i);
  for (std::int64_t c = 0; c < rows.cols; ++c) {
    switch (rows.format) {
      case RowFormat::f32:
      case RowFormat::bf16:
        return;
      case RowFormat::fp8_row:
      case RowFormat::fp8_group:
        out[c] = to_float(E4m3{row.codes[c]});
        break;
      case RowFormat::nvfp4:
        out[c] = to_float(unpack_e2m1(row.codes[c / 2], c)) * to_float(E4m3{row.block_scales[c / kNvfp4Block]});
        break;
      case RowFormat::mxfp8:
        out[c] = to_float(E4m3{row.codes[c]}) * to_float(E8m0{row.block_scales[c / kMxBlock]});
        break;
    }
  }
}

void dequantize_operands(const OperandRows& rows, std::int64_t i, float* out) {
  for (std::int64_t c = 0; c < rows.cols; ++c) out[c] = rows.row(i)[c] * rows.sum_scale(i, c);
}

}  // namespace sluice::reference
