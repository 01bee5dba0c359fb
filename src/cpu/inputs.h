// How the inputs of a product are quantised, for dense projections and for both products of experts.
//
// Called by the runner and by linear(), at load time and from workers. Plain data and pure functions: thread-safe.
#pragma once

#include <cstdint>

#include "cpu/gemm.h"
#include "moe/recipe.h"
#include "moe/runner.h"
#include "numerics/bf16.h"

namespace sluice::cpu {

struct InputRounding {
  bool quantized = false;  // false: bf16 or f32 as they are
  Rounding rounding = Rounding::fp8_static;
  float scale = 1.0f;          // QuantizeArgs::scale
  float output_factor = 1.0f;  // joins the tensor scale of the weight (alpha of nvfp4-w4a4)
  bool token_scales = false;   // a scale a row, for Epilogue::token_scale
  bool group_scales = false;   // a scale per kScaledK columns, for PackedRows::group_scales

  std::int64_t block_columns() const {
    return !quantized ? 0 : rounding == Rounding::nvfp4 ? 16 : rounding == Rounding::mxfp8 ? 32 : 0;
  }
  std::int64_t scales_of_row(std::int64_t cols) const {
    return group_scales ? ceil_div(cols, kScaledK) : token_scales ? 1 : 0;
  }
};

// `static_scale` is the decode multiplier of the checkpoint; 0 = none: fp8-tensor quantises per token then.
InputRounding input_rounding(Recipe recipe, float static_scale);

// One row to be quantised.
struct InputRow {
  const void* x = nullptr;  // [cols]
  Element from = Element::bf16;
  std::int64_t cols = 0;
  const float* factor = nullptr;  // rounds to bf16 after it; nullptr = none
  float* scales = nullptr;        // [scales_of_row(cols)]
  float* block_scales = nullptr;  // for dumps: [ceil(cols / block_columns())]
};

// Into row-major operands, filled up to a multiple of kStoredK.
void quantize_row(const GemmKernels& kernels, const InputRounding& rounding, const InputRow& row, void* operands,
                  Element to);

// NVFP4 rows that came quantised: row t into row-major operands, as quantize_row would have made them.
void load_quantized_row(const QuantizedRows& rows, std::int64_t t, std::int64_t cols, Bf16* operands);

// Into row i of packed rows.
void quantize_packed_row(const GemmKernels& kernels, const InputRounding& rounding, const InputRow& row,
                         const PackedRows& packed, std::int64_t i);

}  // namespace sluice::cpu
