// alltoall: for the same hidden rows the bits of one rank, on every rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "dispatch/rank_world.h"

namespace sluice {
namespace {

using testing::Batch;
using testing::LayerWorld;
using testing::RankResult;
using testing::RoutePattern;
using testing::WorldShape;
using Floats = std::vector<float>;

void expect_on_every_rank(const LayerWorld& w, const Batch& batch, const Floats& want) {
  const std::vector<RankResult> got = run_ranks(w, cut_batch(batch, w.sizes.dp));
  for (std::int32_t r = 0; r < w.sizes.tp; ++r) {
    EXPECT_EQ(got[static_cast<std::size_t>(r)].out, part_of_output(want, w, batch, r))
        << "rank " << r << " of " << w.sizes.tp;
  }
}

using Case = std::tuple<Recipe, std::int64_t>;

class AllToAllBits : public ::testing::TestWithParam<Case> {};

TEST_P(AllToAllBits, EqualOneRankOnEveryRank) {
  WorldShape shape;
  std::tie(shape.recipe, shape.hidden) = GetParam();
  LayerWorld w = make_world(shape);
  const Batch batch = batch_for(w, 9, RoutePattern::zipf);
  const Floats want = run_alone(w, batch);
  for (const auto& [ranks, dp] : {std::pair{2, 2}, {3, 1}, {4, 2}, {8, 8}}) {
    w.sizes = testing::parallel_sizes(ranks, ranks, dp, MoeA2a::alltoall);
    expect_on_every_rank(w, batch, want);
  }
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return testing::recipe_test_name(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Recipes, AllToAllBits,
                         ::testing::Combine(::testing::Values(Recipe::f32, Recipe::bf16, Recipe::fp8_block,
                                                              Recipe::nvfp4_w4a16, Recipe::nvfp4_w4a4_cutedsl,
                                                              Recipe::nvfp4_w4a4_cutlass, Recipe::mxfp4_w4a16),
                                            ::testing::Values(768, 2048, 2880, 7168)),
                         case_name);

// Small layers from here on.
class AllToAll : public ::testing::Test {
 protected:
  LayerWorld w = make_world(WorldShape{});

  void use(std::int32_t ranks, std::int32_t dp) {
    w.sizes = testing::parallel_sizes(ranks, ranks, dp, MoeA2a::alltoall);
  }
};

TEST_F(AllToAll, TheReferenceRunnerToo) {
  WorldShape shape;
  shape.reference = true;
  w = make_world(shape);
  use(4, 2);
  const Batch batch = batch_for(w, 7, RoutePattern::uniform);
  expect_on_every_rank(w, batch, run_alone(w, batch));
}

TEST_F(AllToAll, AllTokensToOneExpert) {
  const Batch batch = batch_for(w, 13, RoutePattern::all_to_one);  // duplicates in each token
  const Floats want = run_alone(w, batch);
  for (const std::int32_t dp : {1, 2, 4}) {
    use(4, dp);
    expect_on_every_rank(w, batch, want);
  }
}

TEST_F(AllToAll, RanksWithoutTokens) {
  for (const std::int64_t tokens : {0, 1, 2, 3}) {
    const Batch batch = batch_for(w, tokens, RoutePattern::uniform);
    const Floats want = run_alone(w, batch);
    for (const std::int32_t dp : {1, 2, 4}) {
      use(4, dp);
      expect_on_every_rank(w, batch, want);
    }
  }
}

// -1, E, anything above, and a token that goes nowhere.
TEST_F(AllToAll, SkippedIds) {
  Batch batch = batch_for(w, 6, RoutePattern::uniform);
  batch.ids[1] = SlotId{-1};
  batch.ids[4] = SlotId{9};
  batch.ids[10] = SlotId{1 << 30};
  for (int s = 0; s < 4; ++s) batch.ids[12 + s] = SlotId{s % 2 == 0 ? -1 : 9};
  const Floats want = run_alone(w, batch);
  EXPECT_EQ(Floats(want.begin() + 3 * 64, want.begin() + 4 * 64), Floats(64, 0.0f));
  use(3, 3);
  expect_on_every_rank(w, batch, want);
}

// Experts 0 and 5 have copies on other ranks, and slots are in no order.
std::shared_ptr<const Placement> with_copies() {
  std::vector<LogicalId> expert_of;
  for (const int e : {5, 0, 8, 1, 7, 0, 3, 2, 6, 4, 5, 0}) expert_of.push_back(LogicalId{e});
  return std::make_shared<const Placement>(expert_of, std::vector<std::int32_t>{3, 2, 6, 1}, 9);
}

TEST_F(AllToAll, CopiesOfExperts) {
  const Batch batch = batch_for(w, 12, RoutePattern::zipf);
  const Floats want = run_alone(w, batch);
  w.placement = with_copies();
  use(4, 2);
  expect_on_every_rank(w, batch, want);
  // The copies of expert 0 take turns: none of the three slots is idle.
  const std::vector<RankResult> got = run_ranks(w, cut_batch(batch, 2));
  EXPECT_GT(got[0].load.rows[1], 0);
  EXPECT_GT(got[2].load.rows[0], 0);
  EXPECT_GT(got[3].load.rows[0], 0);
}

TEST_F(AllToAll, WeightsOnTheInput) {
  WorldShape shape;
  shape.top_k = 1;
  w = make_world(shape);
  w.problem.layer.weight_on_input = true;
  Batch batch = batch_for(w, 6, RoutePattern::uniform);
  for (std::size_t t = 0; t < 6; ++t) batch.weights[t] = 0.3f + 0.1f * static_cast<float>(t);
  use(3, 1);
  expect_on_every_rank(w, batch, run_alone(w, batch));
}

TEST_F(AllToAll, BiasesAreAddedOnce) {
  testing::LayerOptions o;
  o.layer = w.problem.layer;
  o.layer.has_bias = true;
  w.problem.layer = o.layer;
  w.weights = testing::random_weights(o);
  const Batch batch = batch_for(w, 5, RoutePattern::uniform);
  use(2, 2);
  expect_on_every_rank(w, batch, run_alone(w, batch));
}

// Rows that each expert of the model got, counted where it is.
TEST_F(AllToAll, RecordsTheRowsOfEachSlot) {
  const Batch batch = batch_for(w, 11, RoutePattern::hot_one);
  std::vector<std::int64_t> want(9);
  for (const SlotId id : batch.ids) ++want[static_cast<std::size_t>(raw(id))];
  for (const auto& sizes :
       {testing::parallel_sizes(4, 4, 2, MoeA2a::alltoall), testing::parallel_sizes(3, 3, 1, MoeA2a::alltoall),
        testing::parallel_sizes(2, 2, 1), testing::parallel_sizes(4, 4, 4)}) {
    w.sizes = sizes;
    std::vector<std::int64_t> got;
    for (const RankResult& r : run_ranks(w, cut_batch(batch, sizes.dp))) {
      got.insert(got.end(), r.load.rows.begin(), r.load.rows.end());
    }
    EXPECT_EQ(got, want);
  }
}

// Rows travel as NVFP4 codes with linear scales: the bits of one rank, whose runner quantises them.
TEST_F(AllToAll, QuantisedRows) {
  for (const Recipe recipe : {Recipe::nvfp4_w4a4_cutedsl, Recipe::nvfp4_w4a4_cutlass}) {
    for (const bool reference : {false, true}) {
      WorldShape shape;
      shape.recipe = recipe;
      shape.hidden = 200;  // ends inside a block
      shape.reference = reference;
      w = make_world(shape);
      for (const float scale : {0.0f, 0.00123f, 0.0077f, 0x1p-9f}) {
        for (auto* list : {&w.weights.input_scales.gate, &w.weights.input_scales.up}) {
          if (scale > 0) std::fill(list->begin(), list->end(), scale);
        }
        const Batch batch = batch_for(w, 9, RoutePattern::uniform);
        w.quantized_rows = false;
        const Floats want = run_alone(w, batch);
        w.quantized_rows = true;
        use(4, 2);
        expect_on_every_rank(w, batch, want);
      }
    }
  }
}

// They are smaller than bf16 rows, and refused where nothing travels or the recipe reads bf16.
TEST(QuantisedRows, WhereTheyTravel) {
  DispatcherOptions o;
  o.recipe = Recipe::nvfp4_w4a4_cutlass;
  o.input_scale = 0.01f;
  const auto with = [&](const ParallelSizes& sizes) {
    o.plan = plan_rank(sizes, 0);
    return can_quantize_rows(o);
  };
  EXPECT_TRUE(with(testing::parallel_sizes(4, 4, 2)));
  EXPECT_TRUE(with(testing::parallel_sizes(4, 4, 1, MoeA2a::alltoall)));
  EXPECT_FALSE(with(testing::parallel_sizes(4, 4, 1)));
  EXPECT_FALSE(with(testing::parallel_sizes(1, 1, 1)));
  for (const Recipe recipe : {Recipe::bf16, Recipe::nvfp4_w4a16, Recipe::fp8_tensor}) {
    o.recipe = recipe;
    EXPECT_FALSE(with(testing::parallel_sizes(4, 4, 2)));
  }
}

TEST_F(AllToAll, RefusesMoreRanksThanExperts) {
  use(10, 10);
  const Batch batch = batch_for(w, 10, RoutePattern::uniform);
  EXPECT_THROW(run_ranks(w, cut_batch(batch, 10)), Error);
}

}  // namespace
}  // namespace sluice
