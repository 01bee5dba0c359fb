#include "moe/recipe.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Recipe, NamesGoBothWays) {
  for (int i = 0; i < 9; ++i) {
    const auto recipe = static_cast<Recipe>(i);
    EXPECT_EQ(recipe_info(recipe).recipe, recipe);
    EXPECT_EQ(recipe_from_name(recipe_info(recipe).name), recipe);
  }
  EXPECT_EQ(recipe_from_name("nvfp4-w4a4/cutlass"), Recipe::nvfp4_w4a4_cutlass);
  EXPECT_EQ(recipe_from_name("BF16"), std::nullopt);
}

TEST(Recipe, OnlyF32KeepsUnroundedSlotRows) {
  for (int i = 0; i < 9; ++i) {
    const RecipeInfo& info = recipe_info(static_cast<Recipe>(i));
    EXPECT_EQ(info.slot_dtype == DType::f32, info.recipe == Recipe::f32);
    EXPECT_EQ(info.segment_k, info.recipe == Recipe::fp8_block ? 128 : 256) << info.name;
  }
}

}  // namespace
}  // namespace sluice
