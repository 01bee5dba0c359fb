// Static scales of GEMM inputs: which number a layer really quantises with, what that makes of the factors of its sums,
// and which part of a per-expert tensor a rank holds. Rules: moe-runner-spec 4.5 to 4.7 and 5.3.
//
// Called by runners, checkpoint schemes and reports at load time. Pure functions: thread-safe. Scales are decode
// multipliers unless a name says encode (= 1 / decode); the smallest encode scale is the reciprocal of the largest
// decode scale.
#pragma once

#include <cstdint>
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
// The same of encode scales: the smallest.
float shared_encode_scale(std::span<const float> scales, std::string_view name, std::vector<std::string>* warnings);

// [E] one scale an expert: the larger of gate and up where both are there. For layouts that quantise per expert.
// Throws Error(bad_input) when the lists have different lengths.
std::vector<float> gemm1_scale_of_each_expert(const InputScales& scales);

// What the two GEMMs of a layer quantise with; 0 = no static scale.
struct LayerInputScales {
  float gemm1 = 0.0f;
  float gemm2 = 0.0f;
};

// GEMM1 takes the largest of gate and up over all experts of the model, GEMM2 the largest of down. fp8-tensor without
// scales in the file gives 0, which means per token; nvfp4-w4a4 without gives 1 and warns; other recipes give 0.
LayerInputScales layer_input_scales(Recipe recipe, const InputScales& scales,
                                    std::vector<std::string>* warnings = nullptr);

// Factor of the sums of each expert when the input was quantised with `used_encode`: the decode scale of the weight
// over it. The divisor is at least 1e-12.
std::vector<float> alphas(std::span<const float> weight_scales, float used_encode);

// The same where a file states alphas (weight scale * its own input scale) in place of weight scales: the alpha is
// freed of the expert's own encode scale and given the one that is used. Throws Error(bad_input) when the lengths
// differ.
std::vector<float> alphas_from_stated(std::span<const float> stated, std::span<const float> own_encode,
                                      float used_encode);

// A per-expert tensor as a file has it: shape [] or [1] (all experts alike), [E_local], [E_global], or one of the last
// two with 1 or 2 columns (gate, up).
struct ExpertTensor {
  std::span<const float> values;  // row-major
  std::vector<std::int64_t> shape;
  std::string_view name;  // for messages
};
enum class ScaleColumn : std::uint8_t { gate, up };

struct ExpertSplit {
  std::int64_t experts = 0;  // of the model
  std::int32_t ranks = 1;
  std::int32_t rank = 0;

  std::int64_t local() const { return experts / ranks; }
};

// [E_local] what this rank needs. A tensor of one column gives it for both; E_local values are taken as they are,
// E_global values are sliced (with one rank that is the same). Throws Error(bad_input) quoting name, shape and what
// would fit, and Error(usage) when the experts do not divide among the ranks.
std::vector<float> local_scales(const ExpertTensor& tensor, ScaleColumn column, const ExpertSplit& split);

// [E_global] the same of all experts, for scales that all experts share: a tensor of this rank's experts alone is
// refused when there are other ranks, because the shared scale must not depend on the split.
std::vector<float> global_scales(const ExpertTensor& tensor, ScaleColumn column, const ExpertSplit& split);

}  // namespace sluice
