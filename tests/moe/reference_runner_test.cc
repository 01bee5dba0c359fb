// The reference runner on layers small enough to compute by hand, and what its interface promises.
#include "moe/reference_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "moe/reference_stages.h"
#include "moe/runner_harness.h"
#include "moe/stages.h"

namespace sluice {
namespace {

using testing::Batch;
using testing::OutputKind;
using testing::run_batch;
using testing::RunOptions;
using Floats = std::vector<float>;

// Two experts with H = 2, I = 1 and the relu2 activation: y = down * max(up . x, 0)^2. All numbers are small integers,
// so every step is exact in bf16 too.
//   expert 0: up [1, 2], down [1, -1]; expert 1: up [3, -1], down [2, 1]
class TinyLayer : public ::testing::TestWithParam<Recipe> {
 protected:
  TinyLayer() {
    problem.recipe = GetParam();
    problem.layer.hidden = 2;
    problem.layer.intermediate = 1;
    problem.layer.activation.kind = ActivationKind::relu2;
    problem.layer.routing.experts = 2;
    problem.layer.routing.top_k = 2;
  }

  ExpertWeights weights() const {
    ExpertWeights w;
    for (int e = 0; e < 2; ++e) {
      w.up.push_back({{values + 4 * e, DType::f32, 1, 2, 2, 1}, {}, 1.0f});
      w.down.push_back({{values + 4 * e + 2, DType::f32, 2, 1, 1, 1}, {}, 1.0f});
    }
    return w;
  }

  Batch batch(const Floats& hidden, const std::vector<std::int32_t>& ids, const Floats& slot_weights) const {
    const DType dtype = GetParam() == Recipe::f32 ? DType::f32 : DType::bf16;
    Batch b{static_cast<std::int64_t>(hidden.size() / 2), 2, problem.layer.routing.top_k, dtype, {}, {}, slot_weights};
    b.hidden.resize(hidden.size() * static_cast<std::size_t>(dtype_bits(dtype) / 8));
    for (std::size_t i = 0; i < hidden.size(); ++i) testing::detail::store(b.hidden.data(), dtype, i, hidden[i]);
    for (const std::int32_t id : ids) b.ids.push_back(SlotId{id});
    return b;
  }

  Floats run(const Batch& b, const RunOptions& options = {}) const {
    return run_batch(*runner, *runner->prepare(problem, weights()), problem, b, options);
  }

  const float values[8] = {1, 2, 1, -1, 3, -1, 2, 1};
  std::unique_ptr<Runner> runner = make_reference_runner(nullptr);
  Problem problem;
};

// x = [1, 1]: up 3 and 2; squares 9 and 4; rows [9, -9] and [8, 4].
TEST_P(TinyLayer, WeightedSum) {
  EXPECT_EQ(run(batch({1, 1}, {0, 1}, {0.5f, 0.25f})), (Floats{6.5f, -3.5f}));
  EXPECT_EQ(run(batch({1, 1}, {1, 0}, {0.25f, 0.5f}), {OutputKind::sum_bf16}), (Floats{6.5f, -3.5f}));
}

TEST_P(TinyLayer, RoutesAreUnweighted) {
  EXPECT_EQ(run(batch({1, 1}, {0, 1}, {0.5f, 0.25f}), {OutputKind::routes_f32}), (Floats{9, -9, 8, 4}));
}

TEST_P(TinyLayer, DuplicatesCountTwice) { EXPECT_EQ(run(batch({1, 1}, {1, 1}, {0.5f, 0.25f})), (Floats{6, 3})); }

TEST_P(TinyLayer, SkippedIdsContributeNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int32_t id : {-1, 2, 1000000, -2147483647}) {
    EXPECT_EQ(run(batch({1, 1}, {id, 1}, {nan, 0.25f})), (Floats{2, 1}));
    EXPECT_EQ(run(batch({1, 1}, {id, 1}, {nan, 0.25f}), {OutputKind::routes_f32}), (Floats{0, 0, 8, 4}));
    EXPECT_EQ(run(batch({1, 1}, {id, id}, {nan, nan})), (Floats{0, 0}));
  }
}

TEST_P(TinyLayer, SlotRangeMovesTheIds) {
  RunOptions options;
  options.slots = {6, 2};
  EXPECT_EQ(run(batch({1, 1}, {7, 0}, {0.25f, 1.0f}), options), (Floats{2, 1}));
}

TEST_P(TinyLayer, RowsBeyondValidTokensAreZero) {
  const Batch b = batch({1, 1, 1, 1}, {0, 1, 0, 1}, {1, 1, 1, 1});
  for (const std::int32_t valid : {0, 1, 2, 3}) {
    Floats expected = {17, -5, 17, -5};
    for (std::size_t i = 2 * static_cast<std::size_t>(valid); i < 4; ++i) expected[i] = 0;
    RunOptions options;
    options.valid_tokens = valid;
    EXPECT_EQ(run(b, options), expected) << valid;
    options.output = OutputKind::routes_f32;
    EXPECT_EQ(run(b, options)[6], valid >= 2 ? 8.0f : 0.0f);
  }
}

TEST_P(TinyLayer, NoTokens) { EXPECT_EQ(run(batch({}, {}, {})), Floats{}); }

TEST_P(TinyLayer, WeightOnInputIsSquaredByTheActivation) {
  problem.layer.weight_on_input = true;
  problem.layer.routing.top_k = 1;
  // x = 0.5 * [1, 1]: up 1.5, square 2.25, row [2.25, -2.25]; weighting the output would give half of [9, -9].
  EXPECT_EQ(run(batch({1, 1}, {0}, {0.5f})), (Floats{2.25f, -2.25f}));
}

TEST_P(TinyLayer, BiasesAreAddedBeforeTheActivationAndAfterTheSum) {
  problem.layer.has_bias = true;
  const Floats biases = {-1, 10, 20};  // up, down
  ExpertWeights w = weights();
  for (int e = 0; e < 2; ++e) {
    w.up_bias.push_back({biases.data(), DType::f32, 1, 1});
    w.down_bias.push_back({biases.data() + 1, DType::f32, 2, 1});
  }
  const auto prepared = runner->prepare(problem, std::move(w));
  // up 3 - 1 and 2 - 1; squares 4 and 1; rows [4, -4] + [10, 20] and [2, 1] + [10, 20]
  EXPECT_EQ(run_batch(*runner, *prepared, problem, batch({1, 1}, {0, 1}, {1.0f, 2.0f})), (Floats{38, 58}));
}

TEST_P(TinyLayer, ReloadReplacesTheWeights) {
  const auto prepared = runner->prepare(problem, weights());
  const Batch b = batch({1, 1}, {0, 1}, {0.5f, 0.25f});
  const float other[8] = {2, 4, 1, -1, 3, -1, 2, 1};
  ExpertWeights w = weights();
  w.up[0].codes.data = other;
  runner->reload(*prepared, std::move(w));
  EXPECT_EQ(run_batch(*runner, *prepared, problem, b), (Floats{20, -17}));  // expert 0 now gives [36, -36]
}

INSTANTIATE_TEST_SUITE_P(Recipes, TinyLayer, ::testing::Values(Recipe::f32, Recipe::bf16),
                         [](const auto& test) { return std::string(recipe_info(test.param).name); });

// Chains of 2: (2^24 + 1) and (1 + 1) lose one of the ones; a chain of 4 would lose three, pairwise from the end none.
TEST(SegmentedDot, ChainsFromZeroInAscendingOrder) {
  const float big = 0x1p24f;
  const Floats x = {big, 1, 1, 1}, w = {1, 1, 1, 1};
  EXPECT_EQ(reference::segmented_dot(x.data(), w.data(), 4, 2), big + 2.0f);
  EXPECT_EQ(reference::segmented_dot(x.data(), w.data(), 4, 4), big);
  EXPECT_EQ(reference::segmented_dot(x.data(), w.data(), 4, 1), big);
  const Floats late = {1, 1, 1, big};
  EXPECT_EQ(reference::segmented_dot(late.data(), w.data(), 4, 4), big + 4.0f);  // 3 + 2^24 is a tie, to even
  EXPECT_EQ(reference::segmented_dot(x.data(), w.data(), 0, 4), 0.0f);
}

// Rounding points of bf16 with values that bf16 cannot hold. One expert, H = I = 1, swiglu.
class Recorder final : public StageSink {
 public:
  std::map<std::string, Floats> rows;
  std::map<std::string, std::vector<std::int64_t>> routes;
  void record(std::string_view stage, const ConstTensorView& v, const std::int64_t* route) override {
    Floats& out = rows[std::string(stage)];
    for (std::int64_t r = 0; r < v.rows; ++r) out.insert(out.end(), v.row<float>(r), v.row<float>(r) + v.cols);
    auto& ids = routes[std::string(stage)];
    ids.insert(ids.end(), route, route + v.rows);
  }
};

TEST(ReferenceStages, Bf16RoundsExactlyWhereTheRecipeSays) {
  Problem problem;
  problem.layer.hidden = 1;
  problem.layer.intermediate = 1;
  problem.layer.activation = {ActivationKind::swiglu_clamped, 1.0f, 1.0f, INFINITY};
  problem.layer.routing.experts = 1;
  problem.layer.routing.top_k = 1;
  const float gate = 100.0f, up = 1.0f + 0x1p-7f, down = 1.0f + 0x1p-7f;  // all exact in bf16; silu(100) = 100
  ExpertWeights w;
  w.gate.push_back({{&gate, DType::f32, 1, 1, 1, 1}, {}, 1.0f});
  w.up.push_back({{&up, DType::f32, 1, 1, 1, 1}, {}, 1.0f});
  w.down.push_back({{&down, DType::f32, 1, 1, 1, 1}, {}, 1.0f});
  Batch b{1, 1, 1, DType::bf16, std::vector<std::byte>(2), {SlotId{0}}, {1.0f + 0x1p-20f}};
  testing::detail::store(b.hidden.data(), DType::bf16, 0, 1.0f + 0x1p-7f);
  const auto runner = make_reference_runner(nullptr);
  Recorder recorder;
  RunOptions options;
  options.stages = &recorder;
  const Floats out = run_batch(*runner, *runner->prepare(problem, std::move(w)), problem, b, options);
  EXPECT_EQ(recorder.rows["gemm1_input"], (Floats{1.0f + 0x1p-7f}));
  EXPECT_EQ(recorder.rows["gate"], (Floats{100.78125f}));               // not a bf16 number: 100.5 or 101
  EXPECT_EQ(recorder.rows["up"], (Floats{1.0f + 0x1p-6f + 0x1p-14f}));  // nor this
  EXPECT_EQ(recorder.rows["intermediate"], (Floats{102.5f}));           // 100.78125 * 1.01568603 = 102.362...
  EXPECT_EQ(recorder.rows["slot_rows"], (Floats{103.5f}));              // 102.5 * 1.0078125 = 103.30...
  EXPECT_EQ(out, (Floats{103.5f * (1.0f + 0x1p-20f)}));                 // f32 output: no rounding to bf16
}

TEST(ReferenceRunner, StagesNameTheirRoutes) {
  testing::LayerOptions o;
  o.layer.hidden = 16;
  o.layer.intermediate = 8;
  o.layer.routing.experts = 4;
  o.layer.routing.top_k = 3;
  Problem problem;
  problem.layer = o.layer;
  const auto runner = make_reference_runner(nullptr);
  const auto prepared = runner->prepare(problem, testing::random_weights(o));
  const Batch b = testing::random_batch(o.layer, 300, DType::bf16, testing::RoutePattern::uniform, 4);
  Recorder recorder;
  RunOptions options;
  options.output = OutputKind::routes_f32;
  options.stages = &recorder;
  const Floats out = run_batch(*runner, *prepared, problem, b, options);
  const std::vector<std::int64_t>& routes = recorder.routes["slot_rows"];
  ASSERT_EQ(routes.size(), 900u);
  ASSERT_EQ(recorder.rows.size(), 5u);
  for (std::size_t i = 0; i < routes.size(); ++i) {
    EXPECT_TRUE(std::equal(out.begin() + routes[i] * 16, out.begin() + routes[i] * 16 + 16,
                           recorder.rows["slot_rows"].begin() + static_cast<std::int64_t>(i) * 16));
  }
  for (const auto& [stage, ids] : recorder.routes) EXPECT_EQ(ids, routes) << stage;
}

}  // namespace
}  // namespace sluice
