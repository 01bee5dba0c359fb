#include "moe/weight_slices.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "core/error.h"
#include "core/rounding.h"

namespace sluice {
namespace {

constexpr std::int64_t kSmallestGroup = 16;

std::string text(const Share& s) { return std::to_string(s.begin) + " to " + std::to_string(s.end); }

[[noreturn]] void refuse(const char* kind, const Share& part, const std::string& why) {
  fail(ErrorCode::unsupported, std::string(kind) + " " + text(part) + " of a weight " + why,
       "a part that begins at a block of scales and at a whole byte");
}

// Whether a part begins at a block of scales, or lies within one.
bool is_view(const Share& part, std::int64_t block) {
  return part.begin % block == 0 || part.count() == 0 || part.begin / block == (part.end - 1) / block;
}

const void* at_element(const void* data, DType type, std::int64_t element) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + dtype_bytes(type, element);
}

QuantTensor code_rows(const QuantTensor& whole, const Share& rows) {
  QuantTensor part = whole;
  part.codes.data = at_element(whole.codes.data, whole.codes.dtype, rows.begin * whole.codes.row_stride);
  part.codes.rows = rows.count();
  return part;
}

}  // namespace

QuantTensor rows_of(const QuantTensor& whole, const Share& rows) {
  QuantTensor part = code_rows(whole, rows);
  BlockScaleView& s = part.block_scale;
  if (s.data == nullptr) return part;
  if (!is_view(rows, s.block_rows)) refuse("rows", rows, "cut a block of " + std::to_string(s.block_rows) + " rows");
  s.data = at_element(s.data, s.dtype, rows.begin / s.block_rows * s.row_stride);
  return part;
}

QuantTensor columns_of(const QuantTensor& whole, const Share& cols) {
  QuantTensor part = whole;
  MatrixView& m = part.codes;
  if (m.dtype == DType::e2m1 && cols.begin % 2 != 0) refuse("columns", cols, "cut a byte of two codes");
  m.data = at_element(m.data, m.dtype, cols.begin * m.col_stride);
  m.cols = cols.count();
  BlockScaleView& s = part.block_scale;
  if (s.data == nullptr) return part;
  if (!is_view(cols, s.block_cols)) {
    refuse("columns", cols, "cut a block of " + std::to_string(s.block_cols) + " columns");
  }
  s.data = at_element(s.data, s.dtype, cols.begin / s.block_cols * s.col_stride);
  return part;
}

BiasView part_of(const BiasView& whole, const Share& elements) {
  BiasView part = whole;
  part.data = at_element(whole.data, whole.dtype, elements.begin * whole.stride);
  part.count = elements.count();
  return part;
}

QuantTensor rows_of(const QuantTensor& whole, const Share& rows, std::vector<std::byte>& scales) {
  const BlockScaleView& from = whole.block_scale;
  if (from.data == nullptr || is_view(rows, from.block_rows)) return rows_of(whole, rows);
  QuantTensor part = code_rows(whole, rows);
  BlockScaleView& to = part.block_scale;
  to.block_rows = std::gcd(rows.begin, from.block_rows);
  const std::int64_t grid_rows = ceil_div(rows.count(), to.block_rows);
  const std::int64_t grid_cols = ceil_div(whole.codes.cols, from.block_cols);
  const auto size = static_cast<std::size_t>(dtype_bytes(from.dtype, 1));
  scales.resize(static_cast<std::size_t>(grid_rows * grid_cols) * size);
  std::byte* out = scales.data();
  for (std::int64_t r = 0; r < grid_rows; ++r) {
    const std::int64_t row = (rows.begin + r * to.block_rows) / from.block_rows * from.row_stride;
    for (std::int64_t c = 0; c < grid_cols; ++c, out += size) {
      std::memcpy(out, at_element(from.data, from.dtype, row + c * from.col_stride), size);
    }
  }
  to.data = scales.data();
  to.row_stride = grid_cols;
  to.col_stride = 1;
  return part;
}

std::int64_t cut_group(Recipe stored) {
  switch (stored) {
    case Recipe::fp8_block:
      return 128;
    case Recipe::mxfp4_w4a16:
    case Recipe::mxfp4_w4a8:
      return 32;
    default:
      return kSmallestGroup;
  }
}

Share cut_share(std::int64_t n, std::int64_t group, const Piece& piece, std::string_view what, std::string_view hint) {
  const Share share = share_of(n, group, piece);
  if (share.count() > 0) return share;
  const std::int64_t most = ceil_div(n, group);
  fail(ErrorCode::unsupported,
       std::string(what) + ", " + std::to_string(n) + ", cannot be cut into " + std::to_string(piece.count) + " pieces",
       "at most " + std::to_string(most) + ", since groups of " + std::to_string(group) + " stay together",
       std::string(hint));
}

}  // namespace sluice
