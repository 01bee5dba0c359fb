#include "moe/layout/byte_matrix.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace sluice::layout {
namespace {

// Elements of `bytes` each, from a strided grid.
ByteMatrix gather(const void* data, std::int64_t bytes, std::int64_t rows, std::int64_t cols, std::int64_t row_stride,
                  std::int64_t col_stride) {
  ByteMatrix m = zero_bytes(rows, cols * bytes);
  const auto* from = static_cast<const std::uint8_t*>(data);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      std::copy_n(from + (r * row_stride + c * col_stride) * bytes, bytes, m.row(r) + c * bytes);
    }
  }
  return m;
}

void check_groups(std::int64_t rows, std::int64_t group) {
  if (rows % 2 != 0) {
    fail(ErrorCode::bad_input, std::to_string(rows) + " rows cannot be split into two halves",
         "an even number of rows");
  }
  if (group < 1 || rows / 2 % group != 0) {
    fail(ErrorCode::bad_input,
         "a half of " + std::to_string(rows / 2) + " rows cannot be interleaved in groups of " + std::to_string(group),
         "a multiple of the group");
  }
}

}  // namespace

ByteMatrix zero_bytes(std::int64_t rows, std::int64_t row_bytes) {
  return {rows, row_bytes, std::vector<std::uint8_t>(static_cast<std::size_t>(rows * row_bytes))};
}

ByteMatrix code_bytes(const QuantTensor& weight) {
  const MatrixView& v = weight.codes;
  if (v.dtype != DType::e2m1) {
    return gather(v.data, dtype_bytes(v.dtype, 1), v.rows, v.cols, v.row_stride, v.col_stride);
  }
  if (v.col_stride != 1 || v.row_stride % 2 != 0 || v.cols % 2 != 0) {
    fail(ErrorCode::bad_input, "a packed 4-bit weight has rows or strides that split a byte",
         "unit column stride, an even row stride and an even number of columns");
  }
  return gather(v.data, 1, v.rows, v.cols / 2, v.row_stride / 2, 1);
}

ByteMatrix scale_bytes(const QuantTensor& weight) {
  const BlockScaleView& s = weight.block_scale;
  if (s.data == nullptr) return zero_bytes(weight.codes.rows, 0);
  if (s.block_rows != 1) {
    fail(ErrorCode::unsupported, "block scales span " + std::to_string(s.block_rows) + " rows",
         "scales of single rows, as in NVFP4 and MXFP4", "this layout moves rows one by one");
  }
  const std::int64_t cols = (weight.codes.cols + s.block_cols - 1) / s.block_cols;
  return gather(s.data, dtype_bytes(s.dtype, 1), weight.codes.rows, cols, s.row_stride, s.col_stride);
}

ByteMatrix bias_bytes(const BiasView& bias) {
  return gather(bias.data, dtype_bytes(bias.dtype, 1), bias.count, 1, bias.stride, 1);
}

ByteMatrix pad(const ByteMatrix& m, std::int64_t rows, std::int64_t row_bytes) {
  if (rows < m.rows || row_bytes < m.row_bytes) {
    fail(ErrorCode::usage, "padding would cut rows or columns off", "a target that is not smaller");
  }
  ByteMatrix out = zero_bytes(rows, row_bytes);
  for (std::int64_t r = 0; r < m.rows; ++r) std::copy_n(m.row(r), m.row_bytes, out.row(r));
  return out;
}

ByteMatrix stack(const ByteMatrix& first, const ByteMatrix& second) {
  if (first.row_bytes != second.row_bytes) {
    fail(ErrorCode::bad_input, "two halves with rows of different length", "equal lengths");
  }
  ByteMatrix out = first;
  out.rows += second.rows;
  out.bytes.insert(out.bytes.end(), second.bytes.begin(), second.bytes.end());
  return out;
}

ByteMatrix interleave_halves(const ByteMatrix& stacked, std::int64_t group) {
  check_groups(stacked.rows, group);
  const std::int64_t half = stacked.rows / 2;
  ByteMatrix out = zero_bytes(stacked.rows, stacked.row_bytes);
  std::int64_t to = 0;
  for (std::int64_t first = 0; first < half; first += group, to += 2 * group) {
    std::copy_n(stacked.row(first), group * stacked.row_bytes, out.row(to));
    std::copy_n(stacked.row(half + first), group * stacked.row_bytes, out.row(to + group));
  }
  return out;
}

ByteMatrix deinterleave_halves(const ByteMatrix& interleaved, std::int64_t group) {
  check_groups(interleaved.rows, group);
  const std::int64_t half = interleaved.rows / 2;
  ByteMatrix out = zero_bytes(interleaved.rows, interleaved.row_bytes);
  std::int64_t from = 0;
  for (std::int64_t first = 0; first < half; first += group, from += 2 * group) {
    std::copy_n(interleaved.row(from), group * interleaved.row_bytes, out.row(first));
    std::copy_n(interleaved.row(from + group), group * interleaved.row_bytes, out.row(half + first));
  }
  return out;
}

}  // namespace sluice::layout
