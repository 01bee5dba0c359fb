// The bench of one MoE layer: what it counts, that it checks, and that its batches are what they claim to be.
#include "app/bench_moe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "app/bench_layer.h"
#include "core/error.h"
#include "numerics/distance.h"

namespace sluice::app {
namespace {

MoeBenchResult quick(std::vector<std::int64_t> tokens, Recipe recipe = Recipe::bf16) {
  MoeBenchOptions options;
  options.shape = moe_shape("tiny");
  options.tokens = std::move(tokens);
  options.threads = 2;
  options.isa = cpu::choose_isa(cpu::detect_features());
  options.seconds = 0.0;
  options.recipe = recipe;
  return bench_moe(options, {});
}

// tiny: 16 experts, top 4, H 256, I 192. One token: 4 experts x 3 matrices of 256 x 192.
TEST(BenchMoe, CountsBytesAndOperations) {
  const MoeBenchResult r = quick({1, 64});
  ASSERT_EQ(r.points.size(), 2u);
  const MoeBenchPoint& one = r.points[0];
  EXPECT_EQ(one.active_experts, 4.0);
  EXPECT_EQ(one.bytes, 4.0 * 3 * 256 * 192 * 2 + 256 * 2 + 256 * 2);
  EXPECT_EQ(one.operations, 2.0 * 4 * 3 * 256 * 192);
  EXPECT_EQ(one.checked_rows, 1);
  const MoeBenchPoint& many = r.points[1];
  EXPECT_EQ(many.operations, 64.0 * 2 * 4 * 3 * 256 * 192);
  EXPECT_EQ(many.checked_rows, 2);
  for (const MoeBenchPoint& p : r.points) {
    EXPECT_GE(p.repetitions, 7);
    EXPECT_GT(p.percent_of_floor, 0.0);
    EXPECT_LE(p.min_us, p.median_us);
    EXPECT_LE(p.error, r.error_bound);
    EXPECT_NEAR(p.gb_per_s, p.bytes / p.median_us * 1e-3, 1e-9 * p.gb_per_s);
    const double memory = p.bytes / p.read_gb_per_s * 1e-3, arithmetic = p.operations / p.peak_gflop_per_s * 1e-3;
    EXPECT_NEAR(p.floor_us, std::max(memory, arithmetic), 1e-9 * p.floor_us);
    EXPECT_EQ(p.memory_bound, memory >= arithmetic);
  }
}

// Every recipe passes its own check, and moves the bytes of its format: 147456 weights an expert.
TEST(BenchMoe, BytesOfEveryFormat) {
  constexpr double kWeights = 4.0 * 3 * 256 * 192, kRows = 256 * 2 + 256 * 2;
  const std::vector<std::pair<Recipe, double>> bytes_of_weight = {{Recipe::fp8_tensor, 1.0},
                                                                  {Recipe::fp8_block, 1.0 + 4.0 / 16384},
                                                                  {Recipe::nvfp4_w4a16, 0.5625},
                                                                  {Recipe::nvfp4_w4a4_cutedsl, 0.5625},
                                                                  {Recipe::nvfp4_w4a4_cutlass, 0.5625},
                                                                  {Recipe::mxfp4_w4a16, 0.53125},
                                                                  {Recipe::mxfp4_w4a8, 0.53125}};
  for (const auto& [recipe, bytes] : bytes_of_weight) {
    const MoeBenchResult r = quick({1}, recipe);
    EXPECT_EQ(r.recipe, recipe);
    EXPECT_DOUBLE_EQ(r.points[0].bytes, kWeights * bytes + kRows) << recipe_info(recipe).name;
    EXPECT_LE(r.points[0].error, r.error_bound) << recipe_info(recipe).name;
  }
}

TEST(BenchMoe, RefusesWrongResults) {
  EXPECT_NO_THROW(require_correct(0.01, 0.01, 5));
  for (const double error : {0.0101, 1e9, std::numeric_limits<double>::infinity()}) {
    try {
      require_correct(error, 0.01, 5);
      ADD_FAILURE() << error;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::check_failed);
    }
  }
}

TEST(BenchMoe, DistanceOfRows) {
  EXPECT_EQ(relative_l2({3, 4}, {3, 4}), 0.0);
  EXPECT_DOUBLE_EQ(relative_l2({3, 5}, {0, 5}), 0.6);
  EXPECT_EQ(relative_l2({1}, {0}), INFINITY);
  EXPECT_EQ(relative_l2({NAN}, {1}), INFINITY);
  EXPECT_EQ(relative_l2({1}, {NAN}), INFINITY);
}

TEST(BenchMoe, RoutesAreDistinctAndNew) {
  BenchLayer layer(moe_shape("tiny"), 3);
  MoeBatch batch = layer.batch(200);
  const std::vector<SlotId> before = batch.ids;
  std::set<std::int32_t> seen;
  for (std::int64_t t = 0; t < 200; ++t) {
    std::set<std::int32_t> ids;
    for (std::int32_t s = 0; s < 4; ++s) ids.insert(raw(batch.ids[t * 4 + s]));
    EXPECT_EQ(ids.size(), 4u);
    seen.insert(ids.begin(), ids.end());
  }
  EXPECT_EQ(seen.size(), 16u);
  EXPECT_EQ(*seen.rbegin(), 15);
  EXPECT_EQ(layer.active_experts(batch), 16.0);
  EXPECT_EQ(layer.local_routes(batch), 800.0);
  layer.route(batch);
  EXPECT_NE(batch.ids, before);
}

TEST(BenchMoe, UnknownShapeListsAll) {
  try {
    moe_shape("qwen4");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    for (const MoeShape& shape : moe_shapes()) {
      EXPECT_NE(std::string(e.what()).find(shape.name), std::string::npos) << shape.name;
    }
  }
}

}  // namespace
}  // namespace sluice::app
