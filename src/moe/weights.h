// Canonical weights: views into the mapped checkpoint, whatever its dialect (architecture 4.2).
//
// Scales are always decode multipliers: value = code * block_scale * tensor_scale. Checkpoint names, packing and
// reciprocal conventions end in checkpoint/scheme_*. Views own nothing; `keep_alive` of ExpertWeights holds the
// mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/dtype.h"

namespace sluice {

// [rows = outputs n, cols = inputs k]. Strides in elements, so that transposed and interleaved files are views too.
// Packed 4-bit codes need col_stride 1 and an even row_stride.
struct MatrixView {
  const void* data = nullptr;
  DType dtype = DType::bf16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;
};

// Grid of block scales: element (n, k) uses scale (n / block_rows, k / block_cols).
struct BlockScaleView {
  const void* data = nullptr;  // nullptr = no block scales
  DType dtype = DType::f32;
  std::int64_t block_rows = 1;
  std::int64_t block_cols = 1;
  std::int64_t row_stride = 0;  // in scales
  std::int64_t col_stride = 1;
};

// Told, from any thread, that these bytes of a view have been read for the last time: pages of a mapped file are
// dropped then.
using PageRelease = std::function<void(const void* data, std::size_t bytes)>;

struct QuantTensor {
  MatrixView codes;
  BlockScaleView block_scale;
  float tensor_scale = 1.0f;
  float input_scale = 0.0f;  // dense layers: static scale of the input, a decode multiplier; 0 = none in the file
  const PageRelease* release = nullptr;  // dense layers: for codes, while the source lives; nullptr: nothing to drop

  explicit operator bool() const { return codes.data != nullptr; }
};

struct BiasView {
  const void* data = nullptr;  // nullptr = no bias
  DType dtype = DType::bf16;
  std::int64_t count = 0;
  std::int64_t stride = 1;
};

// Static scales of what a GEMM reads, as the file states them, made decode multipliers: value = code * scale. A list is
// empty when the file has none, and otherwise holds all E_routed experts of the layer whatever this rank holds, because
// a scale shared by all experts must not depend on the split (moe-runner-spec 4.6).
struct InputScales {
  std::vector<float> gate;  // [E] of the input of GEMM1
  std::vector<float> up;    // [E] of the input of GEMM1; equal to `gate` in most files
  std::vector<float> down;  // [E] of the intermediate
};

// The experts of one layer on this rank. Non-gated experts have no gate. Bias lists are empty, or as long as `up`.
struct ExpertWeights {
  std::vector<QuantTensor> gate;  // E_local x [I, H]
  std::vector<QuantTensor> up;    // E_local x [I, H]
  std::vector<QuantTensor> down;  // E_local x [H, I]
  std::vector<BiasView> gate_bias, up_bias, down_bias;
  InputScales input_scales;
  std::shared_ptr<const void> keep_alive;
  PageRelease release;  // empty where there is nothing to drop

  std::int64_t count() const { return static_cast<std::int64_t>(up.size()); }
};

// Row n of a weight as fp32, out [cols]: (code * block_scale) * tensor_scale. The one decoder for every format; slow
// and exact: for e2m1 codes, and for any codes under e8m0 scales, only the product with the tensor scale rounds. Ragged
// blocks at the right and lower edge are fine. Throws Error(bad_input) when strides split a byte of packed codes or a
// block has no extent.
void decode_row(const QuantTensor& weight, std::int64_t n, float* out);

// The same without the tensor scale, and the codes alone.
void decode_row_blocks(const QuantTensor& weight, std::int64_t n, float* out);
void decode_row_codes(const QuantTensor& weight, std::int64_t n, float* out);

// The block scale of element (n, c); 1 without block scales.
float decode_block_scale(const BlockScaleView& scale, std::int64_t n, std::int64_t c);

float decode_bias(const BiasView& bias, std::int64_t n);

// Gives up the codes of rows `first` to `last` - 1 where they lie one after the other.
void release_rows(const QuantTensor& weight, std::int64_t first, std::int64_t last);

}  // namespace sluice
