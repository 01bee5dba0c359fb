// What a layer computes in which number format, as a contract (architecture section 5). How it is done is a runner's
// affair.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/dtype.h"

namespace sluice {

enum class Recipe : std::uint8_t {
  f32,
  bf16,
  fp8_tensor,
  fp8_block,
  nvfp4_w4a16,
  nvfp4_w4a4_cutedsl,
  nvfp4_w4a4_cutlass,
  mxfp4_w4a16,
  mxfp4_w4a8,
};

struct RecipeInfo {
  Recipe recipe;
  std::string_view name;   // as in flags and messages: "bf16", "fp8-block", ...
  DType slot_dtype;        // rounding of a slot row: bf16, or f32 for the f32 recipe
  std::int32_t segment_k;  // S: products in one ascending chain; segments are added in ascending order in fp32
};

const RecipeInfo& recipe_info(Recipe recipe);
std::optional<Recipe> recipe_from_name(std::string_view name);

}  // namespace sluice
