// allreduce and allgather: partial sums of ranks, within the bound that the roundings allow.
#include "dispatch/rank_sums.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace sluice {
namespace {

using testing::Batch;
using testing::LayerWorld;
using testing::RoutePattern;
using testing::WorldShape;
using Floats = std::vector<float>;

using Case = std::tuple<Recipe, std::int64_t>;

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return testing::recipe_test_name(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
}

class RankSums : public ::testing::TestWithParam<Case> {
 protected:
  void expect_within(const std::vector<ParallelSizes>& splits, std::int64_t intermediate) {
    WorldShape shape;
    std::tie(shape.recipe, shape.hidden) = GetParam();
    shape.intermediate = intermediate;
    LayerWorld w = make_world(shape);
    const Batch batch = batch_for(w, 5, RoutePattern::uniform);
    const Floats want = run_alone(w, batch);
    const testing::Whole whole = testing::run_whole(w, batch);
    for (const ParallelSizes& sizes : splits) {
      w.sizes = sizes;
      EXPECT_LE(worst_in_bounds(w, batch, want, whole), 1.0)
          << "tp " << sizes.tp << " ep " << sizes.ep << " dp " << sizes.dp;
    }
  }
};

TEST_P(RankSums, ExpertsOverRanks) {
  using testing::parallel_sizes;
  expect_within({parallel_sizes(3, 3, 1), parallel_sizes(8, 8, 1), parallel_sizes(4, 4, 2)}, 64);
}

INSTANTIATE_TEST_SUITE_P(Recipes, RankSums,
                         ::testing::Combine(::testing::Values(Recipe::f32, Recipe::bf16, Recipe::fp8_block,
                                                              Recipe::nvfp4_w4a16, Recipe::nvfp4_w4a4_cutedsl,
                                                              Recipe::nvfp4_w4a4_cutlass, Recipe::mxfp4_w4a16),
                                            ::testing::Values(768, 2048, 2880, 7168)),
                         case_name);

// Rows that travel as NVFP4 change no bit: the codes are those that each runner would have made.
TEST(AllGather, QuantisedRowsHaveTheBitsOfPlainOnes) {
  for (const Recipe recipe : {Recipe::nvfp4_w4a4_cutedsl, Recipe::nvfp4_w4a4_cutlass}) {
    WorldShape shape;
    shape.recipe = recipe;
    shape.hidden = 200;
    LayerWorld w = make_world(shape);
    const Batch batch = batch_for(w, 7, RoutePattern::uniform);
    w.sizes = testing::parallel_sizes(4, 2, 2);
    const auto plain = run_ranks(w, cut_batch(batch, 2));
    w.quantized_rows = true;
    const auto quantized = run_ranks(w, cut_batch(batch, 2));
    for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(plain[r].out, quantized[r].out);
  }
}

class PieceSums : public RankSums {};

TEST_P(PieceSums, PiecesOfExperts) {
  using testing::parallel_sizes;
  expect_within({parallel_sizes(2, 1, 1), parallel_sizes(3, 1, 1), parallel_sizes(4, 2, 1), parallel_sizes(4, 1, 2),
                 parallel_sizes(8, 4, 4)},
                384 + 32);
}

INSTANTIATE_TEST_SUITE_P(Recipes, PieceSums,
                         ::testing::Combine(::testing::Values(Recipe::f32, Recipe::bf16, Recipe::fp8_block,
                                                              Recipe::nvfp4_w4a16, Recipe::nvfp4_w4a4_cutedsl,
                                                              Recipe::nvfp4_w4a4_cutlass, Recipe::mxfp4_w4a16),
                                            ::testing::Values(768)),
                         case_name);

}  // namespace
}  // namespace sluice
