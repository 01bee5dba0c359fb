// Quantised models over ranks: attention, dense FFNs and experts cut between groups of scales, in every format.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/families.h"
#include "model/quantised_model.h"
#include "model/rank_run.h"
#include "model/toy_model.h"

namespace sluice::testing {
namespace {

constexpr double kReordered = 2e-5;  // of sums in f32: rank_model_test.cc
// In the recipe of the format a difference in the last bit of a sum now and then falls on the other side of a rounding
// boundary, and fp8 without static scales quantises a token by the largest of the columns that a rank has. Either way
// ranks carry rounding noise of their own: as far from the exact result as one rank, and up to twice that from it.
constexpr double kRounding = 2.0;

// Two heads of 64 make a block of 128 columns of o; 64 rows of k lie inside of one. 3 blocks of I, 4 of the dense FFN;
// scales of neighbouring blocks differ.
ToyOptions toy_options() {
  ToyOptions o;
  o.hidden = 384;
  o.moe_intermediate = 384;
  o.dense_intermediate = 512;
  o.experts = 4;
  o.top_k = 2;
  o.heads = 8;
  o.kv_heads = 4;
  o.uneven = true;
  return o;
}

std::vector<std::int32_t> some_prompt(std::int32_t vocab) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 24; ++i) ids.push_back((i * i * 37 + 11 * i + 5) % vocab);
  return ids;
}

std::vector<float> of_one_rank(const std::string& folder, const TestDecoderOptions& options,
                               const std::vector<std::int32_t>& prompt) {
  return prompt_logits(*load_test_decoder(folder, options).decoder, prompt, 24);
}

TestDecoderOptions computed_in(DType compute) {
  TestDecoderOptions options;
  options.compute = compute;
  options.context = 64;
  return options;
}

void expect_ranks(const std::string& folder, const ParallelSizes& sizes, std::int32_t vocab) {
  SCOPED_TRACE(sizes_text(sizes));
  const std::vector<std::int32_t> prompt = some_prompt(vocab);
  const std::vector<float> exact = of_one_rank(folder, computed_in(DType::f32), prompt);
  const auto in_f32 = rank_logits(folder, sizes, computed_in(DType::f32), prompt, 24);
  for (const std::vector<float>& logits : in_f32) EXPECT_EQ(logits, in_f32.front());
  EXPECT_LT(relative_l2(in_f32.front(), exact), kReordered);
  const std::vector<float> one = of_one_rank(folder, computed_in(DType::bf16), prompt);
  const auto ranks = rank_logits(folder, sizes, computed_in(DType::bf16), prompt, 24);
  EXPECT_LT(relative_l2(ranks.front(), one), kRounding * relative_l2(one, exact));
}

class RankFormats : public ::testing::TestWithParam<const char*> {};

TEST_P(RankFormats, ToyModel) {
  const ToyModel toy(toy_options());
  const QuantisedModel model(toy.folder(), model::qwen3_moe_family(), GetParam());
  for (const ParallelSizes& sizes : {ParallelSizes{2, 1}, ParallelSizes{3, 1}, ParallelSizes{4, 2}}) {
    expect_ranks(model.folder(), sizes, 320);
  }
}

TEST_P(RankFormats, BundledDeepSeek) {
  const QuantisedModel model(bundled_model("deepseek_v3"), model::deepseek_family(), GetParam());
  for (const ParallelSizes& sizes : {ParallelSizes{2, 2}, ParallelSizes{4, 4}}) {
    expect_ranks(model.folder(), sizes, 1024);
  }
}

// Sinks, and biases of every projection and of experts, which one rank adds.
TEST(RankFormatsOfBiases, BundledGptOss) {
  const QuantisedModel mxfp4(bundled_model("gpt_oss"), model::gpt_oss_family(), "mxfp4", {});
  for (const ParallelSizes& sizes : {ParallelSizes{2, 1}, ParallelSizes{4, 1}, ParallelSizes{4, 2}}) {
    expect_ranks(bundled_model("gpt_oss"), sizes, 1024);
    expect_ranks(mxfp4.folder(), sizes, 1024);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RankFormats, ::testing::Values("fp8", "fp8-block", "nvfp4", "mxfp4"),
                         [](const auto& test) {
                           std::string name = test.param;
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           return name;
                         });

}  // namespace
}  // namespace sluice::testing
