// Every routing method on rows whose scores are simple fractions: logits ln(n) have softmax n / sum; ln 3 has sigmoid
// 3/4; ln(e^4 - 1) has sqrt(softplus) 2.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/error.h"
#include "moe/routing_harness.h"
#include "numerics/tolerance.h"

namespace sluice {
namespace {

using testing::route_all;
using testing::Routed;
using Ids = std::vector<std::int32_t>;

void expect_weights(const Routed& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.weights.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(got.weights[i], expected[i], 16 * tolerance::rounding_bound(expected[i], DType::f32)) << "slot " << i;
  }
}

std::vector<float> logs(const std::vector<double>& values) {
  std::vector<float> out;
  for (const double v : values) out.push_back(static_cast<float>(std::log(v)));
  return out;
}

// Logit of a sigmoid score p.
float logit(double p) { return static_cast<float>(std::log(p / (1 - p))); }

RoutingSpec base(RoutingMethod method, std::int32_t experts, std::int32_t top_k) {
  RoutingSpec spec;
  spec.method = method;
  spec.experts = experts;
  spec.top_k = top_k;
  return spec;
}

TEST(Routing, SoftmaxTopK) {
  RoutingSpec spec = base(RoutingMethod::score_topk, 4, 2);
  const std::vector<float> row = logs({3, 1, 4, 2});
  Routed got = route_all(spec, row);
  EXPECT_EQ(got.ids, (Ids{2, 0}));
  expect_weights(got, {0.4, 0.3});
  spec.renormalize = true;
  expect_weights(route_all(spec, row), {4.0 / 7, 3.0 / 7});
  spec.routed_scaling_factor = 2.5f;
  expect_weights(route_all(spec, row), {10.0 / 7, 7.5 / 7});
  spec.renormalize_epsilon = 0.3f;  // sum 0.7 + 0.3
  expect_weights(route_all(spec, row), {1.0, 0.75});
}

TEST(Routing, TopKThenSoftmaxEqualsRenormalisedSoftmax) {
  RoutingSpec spec = base(RoutingMethod::topk_softmax, 4, 3);
  const Routed got = route_all(spec, logs({3, 1, 4, 2}));
  EXPECT_EQ(got.ids, (Ids{2, 0, 3}));
  expect_weights(got, {4.0 / 9, 3.0 / 9, 2.0 / 9});
}

TEST(Routing, BiasChoosesButDoesNotWeigh) {
  const float bias[] = {0.0f, 0.5f, 0.0f, -1.0f};
  RoutingSpec spec = base(RoutingMethod::score_topk, 4, 2);
  spec.scoring = Scoring::sigmoid;
  spec.correction_bias = bias;
  // scores 0.75 0.5 0.25 0.8, biased 0.75 1.0 0.25 -0.2
  const std::vector<float> row = {logit(0.75), logit(0.5), logit(0.25), logit(0.8)};
  Routed got = route_all(spec, row);
  EXPECT_EQ(got.ids, (Ids{1, 0}));
  expect_weights(got, {0.5, 0.75});
  spec.renormalize = true;
  spec.routed_scaling_factor = 2.0f;
  expect_weights(route_all(spec, row), {0.8, 1.2});
}

TEST(Routing, EachScoring) {
  RoutingSpec spec = base(RoutingMethod::score_topk, 3, 3);
  const std::vector<float> row = {static_cast<float>(std::log(std::exp(1.0) - 1)),
                                  static_cast<float>(std::log(std::exp(4.0) - 1)), -40.0f};
  spec.scoring = Scoring::sqrt_softplus;
  const Routed got = route_all(spec, row);
  EXPECT_EQ(got.ids, (Ids{1, 0, 2}));
  expect_weights(got, {2.0, 1.0, std::exp(-20.0)});
  spec.scoring = Scoring::sigmoid;
  expect_weights(route_all(spec, {std::log(3.0f), 0.0f, -std::log(3.0f)}), {0.75, 0.5, 0.25});
  spec.scoring = Scoring::softmax;
  expect_weights(route_all(spec, logs({5, 3, 2})), {0.5, 0.3, 0.2});
}

TEST(Routing, GroupedMaxKeepsTheGroupsOfTheLargest) {
  // groups {0,1} {2,3} {4,5}, two kept: maxima 5, 4, 6
  RoutingSpec spec = base(RoutingMethod::grouped_max, 6, 3);
  spec.groups = 3;
  spec.top_groups = 2;
  const Routed got = route_all(spec, logs({5, 1, 4, 3, 6, 1}));
  EXPECT_EQ(got.ids, (Ids{4, 0, 1}));  // 4 and 3 of the dropped group are passed over
  expect_weights(got, {6.0 / 20, 5.0 / 20, 1.0 / 20});
}

TEST(Routing, GroupedTop2SumsTheTwoLargestBiasedScores) {
  // biased scores: group 0: 0.9 0.1 0.1 (sum 1.0), group 1: 0.6 0.5 0.2 (1.1), group 2: 0.5 - 2 (all low)
  const float bias[] = {0, 0, 0, 0, 0, 0, -2, -2, -2};
  RoutingSpec spec = base(RoutingMethod::grouped_top2, 9, 2);
  spec.scoring = Scoring::sigmoid;
  spec.groups = 3;
  spec.top_groups = 1;
  spec.correction_bias = bias;
  spec.renormalize = true;
  const std::vector<float> row = {logit(0.9), logit(0.1), logit(0.1), logit(0.6), logit(0.5),
                                  logit(0.2), logit(0.9), logit(0.9), logit(0.9)};
  const Routed got = route_all(spec, row);
  EXPECT_EQ(got.ids, (Ids{3, 4}));  // by maximum, group 0 would win
  expect_weights(got, {6.0 / 11, 5.0 / 11});
}

TEST(Routing, GroupedTop2WithNegativeBiasedScoresStaysInItsGroups) {
  // Everything is negative after the bias: a dropped group masked with 0 would win.
  const float bias[] = {-5, -5, -6, -6};
  RoutingSpec spec = base(RoutingMethod::grouped_top2, 4, 2);
  spec.scoring = Scoring::sigmoid;
  spec.groups = 2;
  spec.top_groups = 1;
  spec.correction_bias = bias;
  EXPECT_EQ(route_all(spec, {0.0f, 1.0f, 2.0f, 3.0f}).ids, (Ids{1, 0}));
}

TEST(Routing, KimiHasOneGroup) {
  RoutingSpec grouped = base(RoutingMethod::grouped_top2, 5, 3);
  grouped.scoring = Scoring::sigmoid;
  const std::vector<float> row = {logit(0.2), logit(0.8), logit(0.5), logit(0.9), logit(0.1)};
  const Routed got = route_all(grouped, row);
  EXPECT_EQ(got.ids, (Ids{3, 1, 2}));
  expect_weights(got, {0.9, 0.8, 0.5});
}

TEST(Routing, HashTakesIdsFromTheTable) {
  const std::int32_t table[] = {3, 0, 1, 2, 2, 3};  // [3, 2]
  RoutingSpec spec = base(RoutingMethod::hash, 4, 2);
  spec.hash_table = table;
  spec.hash_vocab = 3;
  spec.renormalize = true;
  const std::vector<float> row = logs({1, 2, 3, 4});
  std::vector<float> rows = row;
  rows.insert(rows.end(), row.begin(), row.end());
  const Routed got = route_all(spec, rows, {2, 0});
  EXPECT_EQ(got.ids, (Ids{2, 3, 3, 0}));
  expect_weights(got, {3.0 / 7, 4.0 / 7, 0.8, 0.2});
  EXPECT_THROW(route_all(spec, row, {3}), Error);
  EXPECT_THROW(route_all(spec, row, {-1}), Error);
  EXPECT_THROW(route_all(spec, row), Error);
}

TEST(Routing, Llama4TakesTheLargestLogitAndItsSigmoid) {
  const Routed got = route_all(base(RoutingMethod::top1_sigmoid, 3, 1), {logit(0.25), logit(0.75), logit(0.5)});
  EXPECT_EQ(got.ids, (Ids{1}));
  expect_weights(got, {0.75});
}

TEST(Routing, FusedSharedExpertsWeighExactlyOne) {
  RoutingSpec spec = base(RoutingMethod::score_topk, 4, 2);
  spec.renormalize = true;
  spec.routed_scaling_factor = 2.827f;
  spec.fused_shared = 2;
  const Routed got = route_all(spec, logs({3, 1, 4, 2}));
  EXPECT_EQ(got.ids, (Ids{2, 0, 4, 5}));
  expect_weights(got, {2.827f * 4.0 / 7, 2.827f * 3.0 / 7, 1.0, 1.0});
  EXPECT_EQ(got.weights[2], 1.0f);
  EXPECT_EQ(got.weights[3], 1.0f);
}

}  // namespace
}  // namespace sluice
