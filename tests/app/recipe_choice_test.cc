// The recipe of each layer from its stored format and the flags.
#include "app/recipe_choice.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice::app {
namespace {

const std::vector<std::string> kOurs = {"cpu", "reference"};
using Recipes = std::vector<Recipe>;

RecipeChoice choose(const RecipeRequest& request, const Recipes& stored) {
  return choose_recipes(request, stored, kOurs, "Qwen3MoeForCausalLM");
}

void expect_refused(const RecipeRequest& request, const Recipes& stored, ErrorCode code, const std::string& part) {
  try {
    choose(request, stored);
    ADD_FAILURE() << "accepted: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

RecipeRequest backend(const std::string& name) {
  RecipeRequest r;
  r.moe_runner_backend = name;
  return r;
}
RecipeRequest recipe(const std::string& name) {
  RecipeRequest r;
  r.recipe = name;
  return r;
}

TEST(RecipeChoice, IsTheStoredFormatWithoutFlags) {
  const Recipes stored = {Recipe::nvfp4_w4a16, Recipe::fp8_tensor, Recipe::bf16};
  const RecipeChoice c = choose({}, stored);
  EXPECT_EQ(c.recipes, stored);
  EXPECT_EQ(c.runner, "auto");
  EXPECT_TRUE(c.notes.empty());
  EXPECT_FALSE(c.disable_shared_experts_fusion);
}

TEST(RecipeChoice, OurRunnersAreSelectedByName) {
  const RecipeChoice c = choose(backend("reference"), {Recipe::fp8_block});
  EXPECT_EQ(c.runner, "reference");
  EXPECT_EQ(c.recipes, Recipes{Recipe::fp8_block});
  EXPECT_TRUE(c.foreign_backend.empty());
}

TEST(RecipeChoice, AForeignNameSelectsTheRecipeAndTheBestRunner) {
  const RecipeChoice c =
      choose(backend("flashinfer_cutedsl"), {Recipe::nvfp4_w4a16, Recipe::bf16, Recipe::nvfp4_w4a16});
  EXPECT_EQ(c.recipes, (Recipes{Recipe::nvfp4_w4a4_cutedsl, Recipe::bf16, Recipe::nvfp4_w4a4_cutedsl}));
  EXPECT_EQ(c.runner, "auto");
  EXPECT_EQ(c.foreign_backend, "flashinfer_cutedsl");
  EXPECT_TRUE(c.disable_shared_experts_fusion);
  ASSERT_EQ(c.notes.size(), 1u);
  EXPECT_NE(c.notes[0].find("nvfp4-w4a4/cutedsl"), std::string::npos) << c.notes[0];
}

TEST(RecipeChoice, MixedCheckpointsKeepARecipeForEachFormat) {
  const RecipeChoice c = choose(backend("flashinfer_cutlass"), {Recipe::fp8_tensor, Recipe::nvfp4_w4a16, Recipe::bf16});
  EXPECT_EQ(c.recipes, (Recipes{Recipe::fp8_tensor, Recipe::nvfp4_w4a4_cutlass, Recipe::bf16}));
  expect_refused(backend("flashinfer_cutedsl"), {Recipe::nvfp4_w4a16, Recipe::fp8_tensor}, ErrorCode::unsupported,
                 "fp8 per tensor");
}

TEST(RecipeChoice, QuantizationIsCheckedAndExplained) {
  RecipeRequest r;
  r.quantization = "modelopt_fp4";
  const RecipeChoice c = choose(r, {Recipe::nvfp4_w4a16});
  EXPECT_EQ(c.recipes, Recipes{Recipe::nvfp4_w4a16});
  ASSERT_EQ(c.notes.size(), 1u);
  EXPECT_NE(c.notes[0].find("marlin below SM100 and flashinfer_trtllm on SM100"), std::string::npos) << c.notes[0];
  expect_refused(r, {Recipe::bf16}, ErrorCode::unsupported, "no --quantization");
}

TEST(RecipeChoice, AnExplicitRecipeMustFitTheFormat) {
  EXPECT_EQ(choose(recipe("nvfp4-w4a4/cutlass"), {Recipe::nvfp4_w4a16, Recipe::bf16}).recipes,
            (Recipes{Recipe::nvfp4_w4a4_cutlass, Recipe::bf16}));
  EXPECT_EQ(choose(recipe("f32"), {Recipe::mxfp4_w4a16, Recipe::bf16}).recipes, (Recipes{Recipe::f32, Recipe::f32}));
  EXPECT_EQ(choose(recipe("mxfp4-w4a8"), {Recipe::mxfp4_w4a16}).recipes, Recipes{Recipe::mxfp4_w4a8});
  expect_refused(recipe("mxfp4-w4a8"), {Recipe::nvfp4_w4a16}, ErrorCode::unsupported,
                 "auto, f32, nvfp4-w4a16, nvfp4-w4a4/cutedsl, nvfp4-w4a4/cutlass");
  expect_refused(recipe("bf16"), {Recipe::fp8_block}, ErrorCode::unsupported, "auto, f32, fp8-block");
  expect_refused(recipe("nvfp4"), {Recipe::nvfp4_w4a16}, ErrorCode::usage, "nvfp4-w4a16");
}

TEST(RecipeChoice, RecipeAndForeignNameMustAgree) {
  RecipeRequest r = backend("flashinfer_cutedsl");
  r.recipe = "nvfp4-w4a4/cutedsl";
  EXPECT_EQ(choose(r, {Recipe::nvfp4_w4a16}).recipes, Recipes{Recipe::nvfp4_w4a4_cutedsl});
  r.recipe = "nvfp4-w4a16";
  expect_refused(r, {Recipe::nvfp4_w4a16}, ErrorCode::unsupported, "--recipe nvfp4-w4a4/cutedsl");
}

TEST(RecipeChoice, UnknownRunnersListOursAndSglangs) {
  expect_refused(backend("nonsense"), {Recipe::bf16}, ErrorCode::usage, "auto, cpu, reference");
  expect_refused(backend("nonsense"), {Recipe::bf16}, ErrorCode::usage, "flashinfer_cutedsl");
}

TEST(RecipeChoice, TheFlagDisablesFusionToo) {
  RecipeRequest r;
  r.disable_shared_experts_fusion = true;
  EXPECT_TRUE(choose(r, {Recipe::bf16}).disable_shared_experts_fusion);
}

}  // namespace
}  // namespace sluice::app
