// Every family against transformers in float32: logits of all positions, in both layouts of experts and both spellings
// of config.json; and batches of unequal lengths, bit for bit. tests/gen says how the goldens were made.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/golden.h"

namespace sluice::testing {
namespace {

constexpr double kRelativeL2 = 2e-5;
constexpr std::int64_t kWholePrompt = 1024;

std::vector<std::string> families() {
  return {"deepseek_v2",   "deepseek_v2_lite", "deepseek_v3", "glm4_moe",  "gpt_oss",
          "gpt_oss_mxfp4", "mixtral",          "olmoe",       "qwen2_moe", "qwen3_moe"};
}

std::vector<GoldenChoice> choices() {
  std::vector<GoldenChoice> all;
  for (const std::string& family : families()) {
    all.push_back({family, "experts", false});
    all.push_back({family, "experts", true});
    if (has_layout(family, "fused")) all.push_back({family, "fused", false});
  }
  return all;
}

std::string test_name(const ::testing::TestParamInfo<GoldenChoice>& info) {
  return info.param.family + "_" + info.param.layout + (info.param.version4 ? "_v4" : "_v5");
}

TestDecoderOptions float32() {
  TestDecoderOptions options;
  options.compute = DType::f32;
  return options;
}

class Golden : public ::testing::TestWithParam<GoldenChoice> {};

TEST_P(Golden, LogitsOfEveryPosition) {
  const GoldenFolder folder(GetParam());
  const TestDecoder t = load_test_decoder(folder.path(), float32());
  EXPECT_EQ(t.weights->unused(), std::vector<std::string>{});
  const GoldenDifference found = compare_golden(*t.decoder, golden_prompts(GetParam().family), kWholePrompt);
  EXPECT_LE(found.worst, kRelativeL2);
  EXPECT_EQ(found.other_top, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, Golden, ::testing::ValuesIn(choices()), test_name);

class GoldenBatch : public ::testing::TestWithParam<std::string> {};

// Prompts that end inside a KV block, and chunks that begin inside one.
TEST_P(GoldenBatch, PromptsInPieces) {
  const GoldenFolder folder({GetParam()});
  const TestDecoder t = load_test_decoder(folder.path(), float32());
  const GoldenDifference found = compare_golden(*t.decoder, golden_prompts(GetParam()), 7);
  EXPECT_LE(found.worst, kRelativeL2);
  EXPECT_EQ(found.other_top, 0);
}

void expect_same_bits(const std::string& family, DType compute) {
  const GoldenFolder folder({family});
  TestDecoderOptions options;
  options.compute = compute;
  const TestDecoder t = load_test_decoder(folder.path(), options);
  std::vector<std::vector<std::int32_t>> prompts;
  for (const GoldenPrompt& prompt : golden_prompts(family)) prompts.push_back(prompt.input_ids);
  prompts.push_back({prompts.back().rbegin(), prompts.back().rbegin() + 33});
  const std::vector<std::vector<float>> together = batch_logits(*t.decoder, prompts);
  ASSERT_EQ(together.size(), prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(together[i], prompt_logits(*t.decoder, prompts[i], kWholePrompt)) << "prompt " << i;
  }
}

TEST_P(GoldenBatch, UnequalLengthsFloat32) { expect_same_bits(GetParam(), DType::f32); }
TEST_P(GoldenBatch, UnequalLengthsBf16) { expect_same_bits(GetParam(), DType::bf16); }

INSTANTIATE_TEST_SUITE_P(Families, GoldenBatch, ::testing::ValuesIn(families()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace sluice::testing
