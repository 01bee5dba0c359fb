#include "moe/input_scales.h"

#include <algorithm>

namespace sluice {

float shared_decode_scale(std::span<const float> scales, std::string_view name, std::vector<std::string>* warnings) {
  if (!scales.empty()) return *std::max_element(scales.begin(), scales.end());
  if (warnings != nullptr) {
    warnings->push_back(std::string(name) + ": the checkpoint has no input scale; 1 is used for all experts");
  }
  return 1.0f;
}

LayerInputScales layer_input_scales(Recipe recipe, const InputScales& scales, std::vector<std::string>* warnings) {
  if (!uses_static_input_scales(recipe)) return {};
  std::vector<float> gemm1 = scales.gate;
  gemm1.insert(gemm1.end(), scales.up.begin(), scales.up.end());
  if (recipe == Recipe::fp8_tensor && (gemm1.empty() || scales.down.empty())) return {};
  return {shared_decode_scale(gemm1, "gate and up", warnings), shared_decode_scale(scales.down, "down", warnings)};
}

}  // namespace sluice
