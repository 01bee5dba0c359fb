#include "moe/recipe.h"

#include <array>

namespace sluice {
namespace {

// segment_k 256: two bf16 panels of 16 rows are then 16 KiB, half of the smallest L1 data cache that matters, so that a
// CPU kernel can finish a segment for all its tokens before it moves on, and the intermediate widths of the models in
// use are multiples of it. fp8-block has one segment a scale block, because the scales are applied to the sum of a
// block.
constexpr std::int32_t kSegment = 256;
constexpr std::int32_t kScaleBlock = 128;

constexpr std::array<RecipeInfo, 9> kRecipes = {{
    {Recipe::f32, "f32", DType::f32, kSegment},
    {Recipe::bf16, "bf16", DType::bf16, kSegment},
    {Recipe::fp8_tensor, "fp8-tensor", DType::bf16, kSegment},
    {Recipe::fp8_block, "fp8-block", DType::bf16, kScaleBlock},
    {Recipe::nvfp4_w4a16, "nvfp4-w4a16", DType::bf16, kSegment},
    {Recipe::nvfp4_w4a4_cutedsl, "nvfp4-w4a4/cutedsl", DType::bf16, kSegment},
    {Recipe::nvfp4_w4a4_cutlass, "nvfp4-w4a4/cutlass", DType::bf16, kSegment},
    {Recipe::mxfp4_w4a16, "mxfp4-w4a16", DType::bf16, kSegment},
    {Recipe::mxfp4_w4a8, "mxfp4-w4a8", DType::bf16, kSegment},
}};

constexpr bool in_enum_order() {
  for (std::size_t i = 0; i < kRecipes.size(); ++i) {
    if (static_cast<std::size_t>(kRecipes[i].recipe) != i) return false;
  }
  return true;
}
static_assert(in_enum_order(), "recipe_info indexes the table by the enum");

}  // namespace

const RecipeInfo& recipe_info(Recipe recipe) { return kRecipes.at(static_cast<std::size_t>(recipe)); }

std::optional<Recipe> recipe_from_name(std::string_view name) {
  for (const RecipeInfo& info : kRecipes) {
    if (info.name == name) return info.recipe;
  }
  return std::nullopt;
}

bool uses_static_input_scales(Recipe recipe) {
  return recipe == Recipe::fp8_tensor || recipe == Recipe::nvfp4_w4a4_cutedsl || recipe == Recipe::nvfp4_w4a4_cutlass;
}

bool quantizes_to_nvfp4(Recipe recipe) {
  return recipe == Recipe::nvfp4_w4a4_cutedsl || recipe == Recipe::nvfp4_w4a4_cutlass;
}

}  // namespace sluice
