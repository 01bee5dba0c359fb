// Rows that are hard to route: ties, NaN, infinities, saturated scores, padding, many experts.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "core/error.h"
#include "moe/random_layer.h"
#include "moe/routing_harness.h"

namespace sluice {
namespace {

using testing::route_all;
using testing::Routed;
using Ids = std::vector<std::int32_t>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

RoutingSpec base(std::int32_t experts, std::int32_t top_k) {
  RoutingSpec spec;
  spec.experts = experts;
  spec.top_k = top_k;
  return spec;
}

TEST(RoutingRows, TiesGoToTheLowestIds) {
  EXPECT_EQ(route_all(base(6, 4), {1, 2, 1, 2, 1, 2}).ids, (Ids{1, 3, 5, 0}));
  EXPECT_EQ(route_all(base(4, 3), {0.0f, -0.0f, 0.0f, -0.0f}).ids, (Ids{0, 1, 2}));
}

TEST(RoutingRows, SaturatedScoresAreStillOrderedByTheirLogits) {
  RoutingSpec spec = base(4, 2);
  spec.scoring = Scoring::sigmoid;
  EXPECT_EQ(route_all(spec, {20.0f, 30.0f, 40.0f, 25.0f}).ids, (Ids{2, 1}));  // all sigmoids are 1 in fp32
}

TEST(RoutingRows, NaNCountsAsMinusInfinity) {
  const Routed got = route_all(base(4, 3), {kNaN, 0.0f, kNaN, 0.0f});
  EXPECT_EQ(got.ids, (Ids{1, 3, 0}));
  EXPECT_EQ(got.weights, (std::vector<float>{0.5f, 0.5f, 0.0f}));
}

TEST(RoutingRows, RowsWithoutANumberAreRoutedLikeZeros) {
  for (const float v : {kNaN, -kInf}) {
    const Routed got = route_all(base(4, 2), {v, v, v, v});
    EXPECT_EQ(got.ids, (Ids{0, 1}));
    EXPECT_EQ(got.weights, (std::vector<float>{0.25f, 0.25f}));
  }
}

TEST(RoutingRows, PlusInfinityTakesAllOfASoftmax) {
  const Routed got = route_all(base(4, 3), {1.0f, kInf, -1e30f, kInf});
  EXPECT_EQ(got.ids, (Ids{1, 3, 0}));
  EXPECT_EQ(got.weights, (std::vector<float>{0.5f, 0.5f, 0.0f}));
}

TEST(RoutingRows, WeightsThatAreAllZeroStayZero) {
  RoutingSpec spec = base(3, 2);
  spec.scoring = Scoring::sigmoid;
  spec.renormalize = true;
  EXPECT_EQ(route_all(spec, {-200.0f, -300.0f, -400.0f}).weights, (std::vector<float>{0.0f, 0.0f}));
}

TEST(RoutingRows, NaNBiasIsNeverPreferred) {
  const float bias[] = {kNaN, 0.0f, 0.0f};
  RoutingSpec spec = base(3, 2);
  spec.correction_bias = bias;
  const Routed got = route_all(spec, {9.0f, 1.0f, 2.0f});
  EXPECT_EQ(got.ids, (Ids{2, 1}));
}

TEST(RoutingRows, PaddingRowsChooseNothing) {
  RoutingSpec spec = base(2, 1);
  spec.fused_shared = 1;
  const std::vector<float> rows = {0, 1, 1, 0, kNaN, 3};
  const Routed got = route_all(spec, rows, {}, 1);
  EXPECT_EQ(got.ids, (Ids{1, 2, -1, -1, -1, -1}));
  EXPECT_EQ(std::vector<float>(got.weights.begin() + 2, got.weights.end()), (std::vector<float>(4, 0.0f)));
  EXPECT_EQ(route_all(spec, rows, {}, 0).ids, (Ids(6, -1)));
  EXPECT_EQ(route_all(spec, rows, {}, 7).ids[5], 2);
}

// A row's result does not depend on how rows are cut into calls.
TEST(RoutingRows, RangesOfRows) {
  testing::Random random(5);
  RoutingSpec spec = base(36, 4);
  std::vector<float> logits(10 * 36);
  for (float& v : logits) v = random.symmetric(2.0f);
  const Routed whole = route_all(spec, logits);
  std::vector<LogicalId> ids(40, LogicalId{-5});
  std::vector<float> weights(40, -5.0f);
  const RouteInput input{dense_view(logits.data(), DType::f32, 10, 36)};
  route_rows(spec, input, {ids.data(), weights.data()}, 3, 7);
  for (int i = 0; i < 40; ++i) {
    const bool in_range = i >= 12 && i < 28;
    EXPECT_EQ(raw(ids[i]), in_range ? whole.ids[i] : -5);
    EXPECT_EQ(weights[i], in_range ? whole.weights[i] : -5.0f);
  }
}

// Beyond the size that fits the stack, and k = E.
TEST(RoutingRows, ManyExperts) {
  for (const std::int32_t experts : {1, 1024, 1025, 3000}) {
    testing::Random random(7);
    std::vector<float> logits(static_cast<std::size_t>(experts));
    for (float& v : logits) v = random.symmetric(2.0f);
    const Routed got = route_all(base(experts, experts), logits);
    EXPECT_EQ(std::set<std::int32_t>(got.ids.begin(), got.ids.end()).size(), static_cast<std::size_t>(experts));
    for (std::int32_t s = 1; s < experts; ++s) EXPECT_GE(logits[got.ids[s - 1]], logits[got.ids[s]]);
  }
}

TEST(RoutingRows, OtherTypesAndWidthsAreRefused) {
  const std::vector<float> logits(8);
  std::vector<LogicalId> ids(8);
  std::vector<float> weights(8);
  const RouteOutput out{ids.data(), weights.data()};
  EXPECT_THROW(route_rows(base(4, 1), {dense_view(logits.data(), DType::bf16, 2, 4)}, out, 0, 2), Error);
  EXPECT_THROW(route_rows(base(4, 1), {dense_view(logits.data(), DType::f32, 1, 8)}, out, 0, 1), Error);
  EXPECT_NO_THROW(route_rows(base(4, 1), {dense_view(logits.data(), DType::f32, 0, 4)}, out, 0, 0));
}

}  // namespace
}  // namespace sluice
