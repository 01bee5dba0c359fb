// Static scales of GEMM inputs: which number a layer really quantises with, and what that makes of the scales that its
// sums are multiplied by. Rules: moe-runner-spec 4.5 to 4.7 and 5.3.
//
// Called by runners and layouts at load time. Pure functions: thread-safe. Decode multipliers unless a name says
// encode (= 1 / decode); the smallest encode scale is the reciprocal of the largest decode scale.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moe/recipe.h"
#include "moe/weights.h"

namespace sluice {

// One scale for all experts: the largest decode multiplier, so that no expert saturates. None at all gives 1 and one
// line in `warnings` (nullptr = not wanted) that names the list.
float shared_decode_scale(std::span<const float> scales, std::string_view name, std::vector<std::string>* warnings);

// What the two GEMMs of a layer quantise with; 0 = no static scale.
struct LayerInputScales {
  float gemm1 = 0.0f;
  float gemm2 = 0.0f;
};

// GEMM1 takes the largest of gate and up over all experts of the model, GEMM2 the largest of down. fp8-tensor without
// scales in the file gives 0, which means per token; nvfp4-w4a4 without gives 1 and warns; other recipes give 0.
LayerInputScales layer_input_scales(Recipe recipe, const InputScales& scales,
                                    std::vector<std::string>* warnings = nullptr);

}  // namespace sluice
