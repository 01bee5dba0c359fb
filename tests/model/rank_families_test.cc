// Every family over ranks against what transformers computed in float32: latent attention with and without a latent of
// queries, key-value heads repeated, sinks, biases, norms of heads and of all heads, shared experts with and without a
// gate, 12 and 5 experts on 2 and 3 ranks.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/golden.h"
#include "model/rank_run.h"

namespace sluice::testing {
namespace {

constexpr double kRelativeL2 = 2e-5;  // that of one rank: families_golden_test.cc

class RankFamilies : public ::testing::TestWithParam<std::string> {};

void expect_golden(const std::string& family, const ParallelSizes& sizes) {
  SCOPED_TRACE(sizes_text(sizes));
  const GoldenFolder folder({family});
  TestDecoderOptions options;
  options.compute = DType::f32;
  std::vector<GoldenDifference> found(static_cast<std::size_t>(sizes.tp));
  const std::vector<GoldenPrompt> prompts = golden_prompts(family);
  run_ranks(folder.path(), sizes, options, [&](const RankPlan& plan, const TestDecoder& t) {
    found[static_cast<std::size_t>(plan.rank)] = compare_golden(*t.decoder, prompts, 7);
    EXPECT_EQ(t.weights->unused(), std::vector<std::string>{});
  });
  for (const GoldenDifference& difference : found) {
    EXPECT_LE(difference.worst, kRelativeL2);
    EXPECT_EQ(difference.other_top, 0);
  }
}

TEST_P(RankFamilies, TwoRanks) { expect_golden(GetParam(), {2, 2}); }
TEST_P(RankFamilies, ThreeRanks) { expect_golden(GetParam(), {3, 3}); }
TEST_P(RankFamilies, DenseWholeOnEveryRank) {
  ParallelSizes sizes{2, 2};
  sizes.dense_tp = 1;
  expect_golden(GetParam(), sizes);
}

INSTANTIATE_TEST_SUITE_P(Families, RankFamilies,
                         ::testing::Values("deepseek_v2", "deepseek_v2_lite", "deepseek_v3", "glm4_moe", "gpt_oss",
                                           "gpt_oss_mxfp4", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace sluice::testing
