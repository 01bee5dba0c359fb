// The staged proof of every recipe x activation x bias on the reference runner, and that it notices what it must.
#include "moe/staged_proof.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <tuple>

#include "moe/reference_runner.h"

namespace sluice {
namespace {

using testing::FormatOptions;
using testing::ProofReport;
using testing::ProofShape;

using Case = std::tuple<Recipe, ActivationKind>;

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name =
      testing::recipe_test_name(std::get<0>(info.param)) + "_" + std::string(activation_name(std::get<1>(info.param)));
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

class Proof : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<Runner> runner = make_reference_runner(nullptr);
};

TEST_P(Proof, EveryShapeWithAndWithoutBiases) {
  const auto [recipe, activation] = GetParam();
  const bool common = activation == ActivationKind::swiglu || activation == ActivationKind::swiglu_oai;
  const std::vector<ProofShape> few = {{768, 32}, {160, 232, 3, 3}};
  const ProofReport report = testing::prove_shapes(*runner, recipe, activation, common ? testing::proof_shapes() : few);
  EXPECT_TRUE(report.ok()) << report.text();
  const testing::StageCount& codes = report.stages.at("intermediate");
  std::printf("intermediate: %lld values, %lld next to a tie, %lld lost to cancellation\n",
              static_cast<long long>(codes.checked), static_cast<long long>(codes.ties),
              static_cast<long long>(codes.vague));
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, Proof,
    ::testing::Combine(::testing::ValuesIn(testing::all_recipes()),
                       ::testing::Values(ActivationKind::swiglu, ActivationKind::geglu_erf, ActivationKind::geglu_tanh,
                                         ActivationKind::swiglu_oai, ActivationKind::swiglu_clamped,
                                         ActivationKind::swiglu_step, ActivationKind::situ, ActivationKind::relu2)),
    case_name);

// Variants of the formats that a checkpoint may have.
TEST(ProofOfFormats, ScaleTypesChannelsAndDynamicInputs) {
  const auto runner = make_reference_runner(nullptr);
  FormatOptions bf16_scales, e8m0_scales, channels, per_token;
  bf16_scales.block_scale = DType::bf16;
  e8m0_scales.block_scale = DType::e8m0;
  channels.per_channel = true;
  per_token.static_input = false;
  const std::vector<std::pair<Recipe, FormatOptions>> cases = {{Recipe::fp8_block, bf16_scales},
                                                               {Recipe::fp8_block, e8m0_scales},
                                                               {Recipe::fp8_tensor, channels},
                                                               {Recipe::fp8_tensor, per_token}};
  for (const auto& [recipe, format] : cases) {
    for (const ProofShape& shape : {ProofShape{768, 192}, ProofShape{300, 96}}) {
      const ProofReport report = testing::prove_recipe(*runner, recipe, ActivationKind::swiglu, true, shape, format);
      EXPECT_TRUE(report.ok()) << recipe_info(recipe).name << "\n" << report.text();
    }
  }
}

}  // namespace
}  // namespace sluice
