// What reference_dot.cuh computes, as plain data for the host. Used by the oracle and the CUDA backend.
#pragma once

#include <cstdint>

#include "moe/recipe.h"
#include "moe/weights.h"

namespace sluice::cuda {

inline constexpr std::int64_t kDotGroup = 128;  // columns that share a scale in fp8-block

enum class RowForm : std::uint8_t { f32, bf16, fp8_group, fp8_static, fp8_dynamic };

struct DotRule {
  RowForm format = RowForm::f32;
  std::int64_t segment = 256;  // S of the accumulation
};

// A canonical matrix whose pointers are device pointers; strides as in weights.h.
struct DotMatrix {
  MatrixView codes;
  BlockScaleView scale;
  float tensor_scale = 1.0f;
};

// Throws Error(unsupported) for a recipe with 4-bit operands. `static_scale` != 0: rows are quantised with it.
DotRule dot_rule(Recipe recipe, float static_scale);

}  // namespace sluice::cuda
