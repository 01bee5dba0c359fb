// alltoall: for the same hidden rows the bits of one rank, on every rank.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "cpu/runner_cpu.h"
#include "dispatch/rank_world.h"
#include "moe/reference_runner.h"

namespace sluice {
namespace {

using testing::Batch;
using testing::LayerWorld;
using testing::RankResult;
using testing::RoutePattern;
using Floats = std::vector<float>;

constexpr std::int32_t kExperts = 9, kTopK = 4;
constexpr std::int64_t kIntermediate = 64, kTokens = 9;

ParallelSizes alltoall(std::int32_t ranks, std::int32_t dp) {
  ParallelSizes s;
  s.tp = ranks;
  s.dp = dp;
  s.dp_attention = dp > 1;
  s.a2a = MoeA2a::alltoall;
  return resolve(s);
}

LayerWorld make_world(Recipe recipe, std::int64_t hidden, bool reference) {
  LayerWorld w;
  testing::LayerOptions o;
  o.layer.hidden = hidden;
  o.layer.intermediate = kIntermediate;
  o.layer.routing.experts = kExperts;
  o.layer.routing.top_k = kTopK;
  w.problem.layer = o.layer;
  w.problem.recipe = recipe;
  w.problem.row_invariant = true;
  w.weights = testing::quantized_weights(o, recipe);
  w.make_runner = [reference](ThreadPool& pool) -> std::unique_ptr<Runner> {
    if (reference) return make_reference_runner(&pool);
    return cpu::make_cpu_runner(pool, cpu::Isa::scalar);
  };
  return w;
}

// dp groups of uneven size: the batch cut at multiples of its length.
std::vector<Batch> cut(const Batch& batch, std::int32_t dp) {
  std::vector<Batch> parts;
  for (std::int32_t g = 0; g < dp; ++g) {
    const Share s = share_of(batch.tokens, 1, {g, dp});
    parts.push_back(testing::part_of_batch(batch, s.begin, s.count()));
  }
  return parts;
}

// Every rank's output, in the order of the batch, must be `want`.
void expect_on_every_rank(const LayerWorld& w, const Batch& batch, const Floats& want) {
  const std::vector<RankResult> got = run_ranks(w, cut(batch, w.sizes.dp));
  for (std::int32_t r = 0; r < w.sizes.tp; ++r) {
    const RankPlan plan = plan_rank(w.sizes, r);
    const Share s = share_of(batch.tokens, 1, plan.dp);
    const Floats part(want.begin() + s.begin * batch.width, want.begin() + s.end * batch.width);
    EXPECT_EQ(got[static_cast<std::size_t>(r)].out, part) << "rank " << r << " of " << w.sizes.tp;
  }
}

using Case = std::tuple<Recipe, std::int64_t>;

class AllToAllBits : public ::testing::TestWithParam<Case> {};

TEST_P(AllToAllBits, EqualOneRankOnEveryRank) {
  const auto [recipe, hidden] = GetParam();
  LayerWorld w = make_world(recipe, hidden, recipe == Recipe::f32);
  const Batch batch = testing::random_batch(w.problem.layer, kTokens, recipe == Recipe::f32 ? DType::f32 : DType::bf16,
                                            RoutePattern::zipf, 5);
  const Floats want = run_alone(w, batch);
  for (const std::int32_t ranks : {2, 3, 4, 8}) {
    for (const std::int32_t dp : {1, ranks == 4 ? 2 : ranks}) {
      w.sizes = alltoall(ranks, dp);
      expect_on_every_rank(w, batch, want);
    }
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

}  // namespace
}  // namespace sluice
