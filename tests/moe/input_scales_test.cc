// Rules of static input scales, by hand (moe-runner-spec 4.6, 4.7, 5.3).
#include "moe/input_scales.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice {
namespace {

using Floats = std::vector<float>;

std::string refusal(const ExpertTensor& tensor, const ExpertSplit& split, ErrorCode code, bool global = false) {
  try {
    global ? global_scales(tensor, ScaleColumn::gate, split) : local_scales(tensor, ScaleColumn::gate, split);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "";
}

TEST(SharedScale, LargestDecodeIsSmallestEncode) {
  const Floats decode = {0.25f, 0.5f, 0.125f}, encode = {4.0f, 2.0f, 8.0f};
  EXPECT_EQ(shared_decode_scale(decode, "gate", nullptr), 0.5f);
  EXPECT_EQ(shared_encode_scale(encode, "gate", nullptr), 2.0f);
  EXPECT_EQ(shared_encode_scale(Floats{3.0f}, "gate", nullptr), 3.0f);
}

TEST(SharedScale, NoneIsOneWithOneWarningThatNamesTheList) {
  std::vector<std::string> warnings;
  EXPECT_EQ(shared_decode_scale({}, "layer 3 down", &warnings), 1.0f);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("layer 3 down"), std::string::npos);
  EXPECT_EQ(shared_encode_scale({}, "x", &warnings), 1.0f);
  EXPECT_EQ(warnings.size(), 2u);
  EXPECT_EQ(shared_decode_scale(Floats{2.0f}, "y", &warnings), 2.0f);
  EXPECT_EQ(warnings.size(), 2u);
}

TEST(InputScales, LayerScalesCoverGateAndUpOfAllExperts) {
  const InputScales scales = {{0.1f, 0.2f, 0.3f}, {0.4f, 0.1f, 0.1f}, {7.0f, 9.0f, 8.0f}};
  for (const Recipe recipe : {Recipe::fp8_tensor, Recipe::nvfp4_w4a4_cutedsl, Recipe::nvfp4_w4a4_cutlass}) {
    EXPECT_EQ(layer_input_scales(recipe, scales).gemm1, 0.4f);
    EXPECT_EQ(layer_input_scales(recipe, scales).gemm2, 9.0f);
  }
  for (const Recipe recipe : {Recipe::bf16, Recipe::fp8_block, Recipe::nvfp4_w4a16, Recipe::mxfp4_w4a8}) {
    EXPECT_EQ(layer_input_scales(recipe, scales).gemm1, 0.0f) << recipe_info(recipe).name;
  }
  EXPECT_EQ(gemm1_scale_of_each_expert(scales), (Floats{0.4f, 0.2f, 0.3f}));
  EXPECT_EQ(gemm1_scale_of_each_expert({{}, {0.4f, 0.1f}, {}}), (Floats{0.4f, 0.1f}));  // not gated
  EXPECT_THROW(gemm1_scale_of_each_expert({{0.1f}, {0.4f, 0.1f}, {}}), Error);
}

TEST(InputScales, WithoutScalesFp8IsPerTokenAndNvfp4TakesOne) {
  std::vector<std::string> warnings;
  EXPECT_EQ(layer_input_scales(Recipe::fp8_tensor, {}, &warnings).gemm1, 0.0f);
  EXPECT_EQ(layer_input_scales(Recipe::fp8_tensor, {{}, {1.0f}, {}}, &warnings).gemm1, 0.0f);  // only one of the two
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(layer_input_scales(Recipe::nvfp4_w4a4_cutlass, {}, &warnings).gemm1, 1.0f);
  EXPECT_EQ(warnings.size(), 2u);
}

// weight_scale_2 = 0.5 and 0.25; the shared encode scale is 4 (decode 0.25).
TEST(Alphas, FollowTheScaleThatIsUsed) {
  EXPECT_EQ(alphas(Floats{0.5f, 0.25f}, 4.0f), (Floats{0.125f, 0.0625f}));
  // The file's own alphas, of encode scales 8 and 4: 0.5 / 8 and 0.25 / 4.
  EXPECT_EQ(alphas_from_stated(Floats{0.0625f, 0.0625f}, Floats{8.0f, 4.0f}, 4.0f), (Floats{0.125f, 0.0625f}));
  EXPECT_EQ(alphas(Floats{1e-12f}, 0.0f), (Floats{1.0f}));  // the divisor is held at 1e-12
  EXPECT_EQ(alphas_from_stated(Floats{1e-12f}, Floats{2.0f}, -1.0f), (Floats{2.0f}));
  EXPECT_THROW(alphas_from_stated(Floats{1.0f}, Floats{1.0f, 2.0f}, 1.0f), Error);
}

TEST(LocalScales, EveryShapeAFileMayHave) {
  const ExpertSplit second{6, 3, 1};  // experts 2 and 3
  const Floats one = {5.0f}, local = {1, 2}, global = {0, 1, 2, 3, 4, 5};
  EXPECT_EQ(local_scales({one, {}, "s"}, ScaleColumn::gate, second), (Floats{5, 5}));
  EXPECT_EQ(local_scales({one, {1}, "s"}, ScaleColumn::up, second), (Floats{5, 5}));
  EXPECT_EQ(local_scales({local, {2}, "s"}, ScaleColumn::up, second), (Floats{1, 2}));
  EXPECT_EQ(local_scales({global, {6}, "s"}, ScaleColumn::gate, second), (Floats{2, 3}));
  EXPECT_EQ(local_scales({global, {6, 1}, "s"}, ScaleColumn::up, second), (Floats{2, 3}));
  const Floats pairs = {0, 10, 1, 11, 2, 12, 3, 13, 4, 14, 5, 15};
  EXPECT_EQ(local_scales({pairs, {6, 2}, "s"}, ScaleColumn::gate, second), (Floats{2, 3}));
  EXPECT_EQ(local_scales({pairs, {6, 2}, "s"}, ScaleColumn::up, second), (Floats{12, 13}));
  const Floats local_pairs = {1, 11, 2, 12};
  EXPECT_EQ(local_scales({local_pairs, {2, 2}, "s"}, ScaleColumn::up, second), (Floats{11, 12}));
  const Floats pair = {1, 11};
  EXPECT_EQ(local_scales({pair, {1, 2}, "s"}, ScaleColumn::up, second), (Floats{11, 11}));
}

// With one rank both readings are the same; with as many ranks as experts one value is a scalar, E values are sliced.
TEST(LocalScales, LocalOrGlobalIsOnlyAmbiguousWhereItDoesNotMatter) {
  const Floats values = {1, 2, 3, 4};
  EXPECT_EQ(local_scales({values, {4}, "s"}, ScaleColumn::gate, {4, 1, 0}), values);
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(local_scales({values, {4}, "s"}, ScaleColumn::gate, {4, 4, rank}), (Floats{values[rank]}));
    EXPECT_EQ(local_scales({Floats{9.0f}, {1}, "s"}, ScaleColumn::gate, {4, 4, rank}), (Floats{9.0f}));
  }
}

TEST(LocalScales, AllSlicesMakeTheWholeAndTheSharedScaleDoesNotDependOnTheSplit) {
  const Floats values = {0.5f, 3.0f, 1.0f, 2.0f, 0.1f, 0.2f, 0.3f, 0.4f};
  for (const std::int32_t ranks : {1, 2, 4, 8}) {
    Floats joined;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const ExpertSplit split{8, ranks, rank};
      const Floats part = local_scales({values, {8}, "s"}, ScaleColumn::gate, split);
      joined.insert(joined.end(), part.begin(), part.end());
      EXPECT_EQ(shared_decode_scale(global_scales({values, {8}, "s"}, ScaleColumn::gate, split), "s", nullptr), 3.0f);
    }
    EXPECT_EQ(joined, values);
  }
}

TEST(LocalScales, RefusesEverythingElseQuotingTheShape) {
  const Floats values(12, 1.0f);
  const auto part = [&](std::size_t count) { return std::span<const float>(values).subspan(0, count); };
  const ExpertSplit second{6, 3, 1};
  const std::string text = refusal({part(5), {5}, "w13_input_scale"}, second, ErrorCode::bad_input);
  EXPECT_NE(text.find("w13_input_scale has shape [5] on rank 1 of 3"), std::string::npos) << text;
  EXPECT_NE(text.find("2 experts (this rank) or 6 experts (all ranks)"), std::string::npos) << text;
  EXPECT_NE(refusal({part(12), {4, 3}, "s"}, second, ErrorCode::bad_input), "");     // three columns
  EXPECT_NE(refusal({part(12), {3, 2, 2}, "s"}, second, ErrorCode::bad_input), "");  // three dimensions
  EXPECT_NE(refusal({part(0), {0}, "s"}, second, ErrorCode::bad_input), "");
  EXPECT_NE(refusal({part(5), {6}, "s"}, second, ErrorCode::bad_input), "");  // fewer values than the shape says
  EXPECT_NE(refusal({part(6), {6}, "s"}, {6, 4, 0}, ErrorCode::usage), "");   // 6 experts on 4 ranks
  EXPECT_NE(refusal({part(6), {6}, "s"}, {6, 3, 3}, ErrorCode::usage), "");
}

TEST(GlobalScales, RefusesTheScalesOfOneRank) {
  const Floats values = {1, 2};
  const std::string text = refusal({values, {2}, "w2_input_scale"}, {6, 3, 1}, ErrorCode::bad_input, true);
  EXPECT_NE(text.find("6 experts (all ranks)"), std::string::npos) << text;
  EXPECT_EQ(text.find("this rank"), std::string::npos) << text;
  EXPECT_EQ(global_scales({values, {2}, "s"}, ScaleColumn::gate, {2, 1, 0}), values);
  EXPECT_EQ(global_scales({Floats{4.0f}, {}, "s"}, ScaleColumn::gate, {3, 3, 1}), (Floats{4, 4, 4}));
}

}  // namespace
}  // namespace sluice
