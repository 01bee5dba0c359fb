// Data-parallel attention and all-to-all: groups of ranks with prompts of their own, one of them idle at times.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "model/rank_run.h"
#include "model/toy_model.h"

namespace sluice::testing {
namespace {

constexpr double kReordered = 2e-5;  // of sums in f32: rank_model_test.cc
constexpr std::int64_t kTokens = 12, kChunk = 5;

std::vector<std::int32_t> prompt_of(std::int32_t group) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(kTokens));
  std::iota(ids.begin(), ids.end(), 40 + 60 * group);
  return ids;
}

ToyOptions small() {
  ToyOptions o;
  o.hidden = 256;
  o.moe_intermediate = 128;
  o.dense_intermediate = 256;
  return o;
}

TestDecoderOptions computed_in(DType compute) {
  TestDecoderOptions options;
  options.compute = compute;
  options.context = 64;
  return options;
}

ParallelSizes with_dp(std::int32_t tp, std::int32_t ep, std::int32_t dp, MoeA2a a2a) {
  ParallelSizes sizes{tp, ep, dp};
  sizes.dp_attention = dp > 1;
  sizes.a2a = a2a;
  return sizes;
}

// Logits of every rank, where dp group g computes prompt g, and groups from `busy` on compute nothing.
std::vector<std::vector<float>> dp_logits(const std::string& folder, const ParallelSizes& sizes,
                                          const TestDecoderOptions& options, std::int32_t busy) {
  std::vector<std::vector<float>> logits(static_cast<std::size_t>(sizes.tp));
  run_ranks(folder, sizes, options, [&](const RankPlan& plan, const TestDecoder& t) {
    if (plan.dp.index < busy) {
      logits[static_cast<std::size_t>(plan.rank)] = prompt_logits(*t.decoder, prompt_of(plan.dp.index), kChunk);
      return;
    }
    for (std::int64_t begin = 0; begin < kTokens; begin += kChunk) idle_step(*t.decoder, kChunk);
  });
  return logits;
}

class RankDp : public ::testing::TestWithParam<MoeA2a> {};

TEST_P(RankDp, EveryGroupGetsWhatOneRankGives) {
  const ToyModel toy(small());
  const TestDecoderOptions options = computed_in(DType::f32);
  const TestDecoder whole = load_test_decoder(toy.folder(), options);
  for (const ParallelSizes& sizes : {with_dp(2, 1, 2, GetParam()), with_dp(4, 2, 2, GetParam()),
                                     with_dp(3, 3, 3, GetParam()), with_dp(4, 4, 1, GetParam())}) {
    for (const std::int32_t busy : {sizes.dp, 1}) {
      SCOPED_TRACE(sizes_text(sizes) + ", busy " + std::to_string(busy));
      const auto ranks = dp_logits(toy.folder(), sizes, options, busy);
      for (std::int32_t r = 0; r < sizes.tp; ++r) {
        const std::int32_t group = r / (sizes.tp / sizes.dp);
        if (group >= busy) continue;
        const std::vector<float> one = prompt_logits(*whole.decoder, prompt_of(group), kChunk);
        EXPECT_LT(relative_l2(ranks[static_cast<std::size_t>(r)], one), kReordered) << "rank " << r;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(A2a, RankDp, ::testing::Values(MoeA2a::none, MoeA2a::alltoall),
                         [](const auto& test) { return test.param == MoeA2a::none ? "None" : "AllToAll"; });

// Attention whole on every rank, slot rows summed at home: nothing is summed in another order.
TEST(RankDp, AllToAllWithWholeAttentionGivesTheBitsOfOneRank) {
  const ToyModel toy(small());
  const TestDecoderOptions options = computed_in(DType::bf16);
  const TestDecoder whole = load_test_decoder(toy.folder(), options);
  for (const std::int32_t ranks : {2, 3, 4}) {
    const auto found = dp_logits(toy.folder(), with_dp(ranks, 1, ranks, MoeA2a::alltoall), options, ranks);
    for (std::int32_t r = 0; r < ranks; ++r) {
      EXPECT_EQ(found[static_cast<std::size_t>(r)], prompt_logits(*whole.decoder, prompt_of(r), kChunk)) << r;
    }
  }
}

// 8 experts on 3 ranks hold 3, 3 and 2; layers 0 and 2 have experts. Rows of a slot are the routes to its expert.
TEST(RankDp, RowsOfSlotsAreCounted) {
  const ToyModel toy(small());
  const std::vector<std::int32_t> prompt = prompt_of(0);
  const TestDecoder whole = load_test_decoder(toy.folder(), computed_in(DType::f32));
  const std::vector<std::vector<std::int32_t>> routes = prompt_routes(*whole.decoder, prompt);
  std::vector<std::array<std::vector<std::int64_t>, 2>> rows(3);  // [ranks][MoE layers][slots]
  run_ranks(toy.folder(), {3, 3}, computed_in(DType::f32), [&](const RankPlan& plan, const TestDecoder& rank) {
    prompt_logits(*rank.decoder, prompt, kTokens);
    EXPECT_EQ(rank.decoder->slot_load(1), nullptr);  // dense
    for (const std::size_t moe : {0u, 1u}) {
      rows[static_cast<std::size_t>(plan.rank)][moe] =
          rank.decoder->slot_load(static_cast<std::int64_t>(2 * moe))->rows;
    }
  });
  for (std::int32_t e = 0; e < 8; ++e) {
    const auto rank = static_cast<std::size_t>(e / 3), slot = static_cast<std::size_t>(e % 3);
    for (const std::size_t moe : {0u, 1u}) {
      const auto expected = std::count(routes[moe].begin(), routes[moe].end(), e);
      EXPECT_EQ(rows[rank][moe].at(slot), expected) << "expert " << e << " of layer " << 2 * moe;
    }
  }
  EXPECT_EQ(whole.decoder->slot_load(0), nullptr);
}

}  // namespace
}  // namespace sluice::testing
