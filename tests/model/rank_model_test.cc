// The model over ranks against one rank: residual stream after every block, memory, faults of options.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "comm/group.h"
#include "core/error.h"
#include "model/rank_part.h"
#include "model/rank_run.h"
#include "model/toy_model.h"

namespace sluice::testing {
namespace {

// Ranks add up parts of the sums of o and of down, where one rank adds in one order: both are off by roundings of f32,
// which look random. With K = 768 products, 2 sums a block and 3 blocks: 2 * 6 * sqrt(768) * 2^-24 = 2e-5.
constexpr double kReordered = 2e-5;

std::vector<std::int32_t> some_prompt(std::int32_t n, std::int32_t vocab) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  std::uint32_t state = 7;
  for (std::int32_t& id : ids) {
    state = state * 1664525u + 1013904223u;
    id = static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(vocab));
  }
  return ids;
}

TestDecoderOptions first_blocks(DType compute, std::size_t blocks) {
  TestDecoderOptions options;
  options.compute = compute;
  options.context = 64;
  options.change_config = [blocks](model::ModelConfig& c) { c.layers.resize(std::min(blocks, c.layers.size())); };
  return options;
}

const ParallelSizes kSizes[] = {{2, 1}, {2, 2}, {3, 1}, {3, 3}, {4, 1}, {4, 2}, {4, 4}};

// The residual stream after block b is seen through the output projection of a model that ends there.
TEST(RankModel, EveryBlockGivesWhatOneRankGives) {
  const ToyModel toy;
  const std::vector<std::int32_t> prompt = some_prompt(20, 320);
  for (const std::size_t blocks : {1u, 2u, 3u}) {
    const TestDecoderOptions options = first_blocks(DType::f32, blocks);
    const std::vector<float> one = prompt_logits(*load_test_decoder(toy.folder(), options).decoder, prompt, 9);
    for (const ParallelSizes& sizes : kSizes) {
      SCOPED_TRACE(sizes_text(sizes) + " after block " + std::to_string(blocks));
      const auto ranks = rank_logits(toy.folder(), sizes, options, prompt, 9);
      for (const std::vector<float>& logits : ranks) EXPECT_EQ(logits, ranks.front());
      EXPECT_LT(relative_l2(ranks.front(), one), kReordered);
    }
  }
}

// In bf16 a value now and then falls on the other side of a rounding boundary. Ranks then carry rounding noise of their
// own: as far from the exact result as one rank, and up to twice that from it.
TEST(RankModel, Bf16StaysWithinWhatItsRoundingCosts) {
  const ToyModel toy;
  const std::vector<std::int32_t> prompt = some_prompt(20, 320);
  const auto one = prompt_logits(*load_test_decoder(toy.folder(), first_blocks(DType::bf16, 3)).decoder, prompt, 20);
  const auto exact = prompt_logits(*load_test_decoder(toy.folder(), first_blocks(DType::f32, 3)).decoder, prompt, 20);
  const double rounding = relative_l2(one, exact);
  for (const ParallelSizes& sizes : {ParallelSizes{2, 1}, ParallelSizes{4, 2}}) {
    const auto ranks = rank_logits(toy.folder(), sizes, first_blocks(DType::bf16, 3), prompt, 20);
    for (const std::vector<float>& logits : ranks) EXPECT_EQ(logits, ranks.front());
    EXPECT_LT(relative_l2(ranks.front(), one), 2.0 * rounding);
  }
}

// One rank with a group of one takes the path without collectives, to the bit.
TEST(RankModel, AGroupOfOneChangesNothing) {
  const ToyModel toy;
  const std::vector<std::int32_t> prompt = some_prompt(20, 320);
  const TestDecoderOptions options = first_blocks(DType::bf16, 3);
  const auto one = prompt_logits(*load_test_decoder(toy.folder(), options).decoder, prompt, 20);
  EXPECT_EQ(rank_logits(toy.folder(), {1, 1}, options, prompt, 20).front(), one);
}

// 6 query heads with 2 key-value heads, 3 layers, bf16.
TEST(RankModel, KvHeadsAreDealtOutThenRepeated) {
  const ToyModel toy;
  const std::int64_t head = 3 * 64 * 2 * 2;
  for (const auto& [tp, heads] : {std::pair{1, 2}, std::pair{2, 1}, std::pair{3, 1}, std::pair{4, 1}}) {
    run_ranks(toy.folder(), {tp, tp}, {}, [&, kv = heads](const RankPlan&, const TestDecoder& t) {
      EXPECT_EQ(t.decoder->kv_bytes_per_token(), kv * head);
    });
  }
}

TEST(RankModel, WeightsAreSpreadOverRanks) {
  const ToyModel toy;
  const TestDecoder whole = load_test_decoder(toy.folder());
  for (const ParallelSizes& sizes : kSizes) {
    SCOPED_TRACE(sizes_text(sizes));
    std::vector<std::int64_t> experts(static_cast<std::size_t>(sizes.tp));
    run_ranks(toy.folder(), sizes, {}, [&](const RankPlan& plan, const TestDecoder& t) {
      experts[static_cast<std::size_t>(plan.rank)] = t.decoder->weight_bytes().experts;
      EXPECT_LT(t.decoder->weight_bytes().per_token, whole.decoder->weight_bytes().per_token);
    });
    const auto all = std::accumulate(experts.begin(), experts.end(), std::int64_t{0});
    EXPECT_GE(all, whole.decoder->weight_bytes().experts);
    EXPECT_LT(all, whole.decoder->weight_bytes().experts * 11 / 10);  // panels are padded
  }
}

// Ranks without tokens take part in every collective.
TEST(RankModel, AcceptsAnEmptyBatch) {
  const ToyModel toy;
  run_ranks(toy.folder(), {2, 1}, {},
            [](const RankPlan&, const TestDecoder& t) { EXPECT_NO_THROW(idle_step(*t.decoder, 1)); });
}

TEST(RankModel, RefusesAPlanWithoutGroups) {
  const ToyModel toy;
  TestDecoderOptions options;
  options.plan = plan_rank(resolve({2, 1}), 1);
  EXPECT_THROW(load_test_decoder(toy.folder(), options), Error);
}

TEST(RankModel, RefusesMoreRanksThanExpertsOrGroups) {
  const ToyModel toy;
  try {
    run_ranks(toy.folder(), {9, 9}, {}, [](const RankPlan&, const TestDecoder&) {});
    FAIL() << "loaded";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("8 experts"), std::string::npos) << e.what();
  }
  LayerSpec spec;
  spec.intermediate = 64;
  spec.routing.experts = 8;
  const Placement placement = Placement::contiguous(8, 1);
  EXPECT_THROW(model::expert_slice(spec, Recipe::mxfp4_w4a16, placement, plan_rank(resolve({4, 1}), 3)), Error);
  EXPECT_EQ(model::expert_slice(spec, Recipe::bf16, placement, plan_rank(resolve({4, 1}), 3)).inner.begin, 48);
}

}  // namespace
}  // namespace sluice::testing
