// A quantised matrix that owns its memory, its decoder, and what the quantisers share. Called by the exporter, the
// reference runner and tests; fast paths have their own layouts. Objects have no hidden state: const use is
// thread-safe.
//
// Rules of every quantiser here (block_fp8.h, block_nvfp4.h, block_mx.h):
//   - amax is the largest magnitude of a block; NaN does not count, infinity counts as FLT_MAX and is quantised as it;
//   - divisions are exact float32 divisions, never reciprocal approximations; no float32 subnormal is flushed;
//   - elements round to nearest, ties to the even code, and saturate; the sign of zero is kept;
//   - NaN is never lost: e4m3 elements have a NaN code; an e2m1 block that holds a NaN gets a NaN scale and zero codes,
//     so that the whole block decodes to NaN. (GPU quantisers turn such an element into a finite one; OCP leaves it
//     open.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "numerics/block_format.h"

namespace sluice {

// [rows, cols] f32, unit column stride. Non-owning.
struct FloatView {
  const float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;  // elements

  std::span<const float> row(std::int64_t r) const { return {data + r * row_stride, static_cast<std::size_t>(cols)}; }
  FloatView block(std::int64_t first_row, std::int64_t first_col, std::int64_t max_rows, std::int64_t max_cols) const;
};

struct QuantMatrix {
  BlockFormat format = BlockFormat::fp8_tensor;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::uint8_t> codes;        // [rows, code_row_bytes] e4m3, or e2m1 two a byte
  std::vector<std::uint8_t> byte_scales;  // [scale_rows, scale_cols] e4m3 or e8m0; empty in other formats
  std::vector<float> float_scales;        // [scale_rows, scale_cols] f32; empty in other formats
  float tensor_scale = 1.0f;

  const BlockFormatInfo& info() const { return block_format_info(format); }
  BlockLayout layout() const { return block_layout(info(), rows, cols); }
  std::span<std::uint8_t> code_row(std::int64_t r);
  std::span<std::uint8_t> byte_scale_row(std::int64_t r);  // r counts scale rows
  std::span<float> float_scale_row(std::int64_t r);
};

// All codes and scales zero, of the right lengths.
QuantMatrix make_quant_matrix(BlockFormat format, std::int64_t rows, std::int64_t cols);

// Row r as float32, out [cols]: (code * block_scale) * tensor_scale. For nvfp4 the first product is exact and for the
// MX formats everything is; the rest rounds once.
void dequantize_row(const QuantMatrix& matrix, std::int64_t r, std::span<float> out);

// [rows, cols] f32, dense.
std::vector<float> dequantize(const QuantMatrix& matrix);

// Largest magnitude by the rules above; 0 of an empty block.
float finite_amax(std::span<const float> values);
float finite_amax(const FloatView& values);
bool has_nan(std::span<const float> values);

// Infinity becomes FLT_MAX of its sign; everything else, NaN included, stays.
float clamp_infinity(float v);

// Throws unless `codes` and `scales` have exactly the lengths that a row of `cols` elements needs.
void check_row_spans(BlockFormat format, std::size_t cols, std::size_t codes, std::size_t scales);

}  // namespace sluice
