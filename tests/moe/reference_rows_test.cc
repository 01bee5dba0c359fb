// A row's bits depend on nothing but the row: not on the batch, its position, threads, chunks, the layout of the
// weights or what other rows and experts hold (architecture 4.5).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/thread_pool.h"
#include "moe/quantized_layer.h"
#include "moe/reference_runner.h"
#include "moe/runner_harness.h"

namespace sluice {
namespace {

using testing::Batch;
using testing::LayerOptions;
using testing::OutputKind;
using testing::RoutePattern;
using testing::run_batch;
using testing::RunOptions;
using testing::WeightLayout;
using Floats = std::vector<float>;

LayerOptions layer_options(std::int64_t hidden, std::int64_t intermediate, ActivationKind kind, bool bias) {
  LayerOptions o;
  o.layer.hidden = hidden;
  o.layer.intermediate = intermediate;
  o.layer.activation.kind = kind;
  o.layer.has_bias = bias;
  o.layer.routing.experts = 6;
  o.layer.routing.top_k = 3;
  return o;
}

Problem problem_of(const LayerOptions& o, Recipe recipe) {
  Problem p;
  p.layer = o.layer;
  p.recipe = recipe;
  return p;
}

DType compute_type(Recipe recipe) { return recipe == Recipe::f32 ? DType::f32 : DType::bf16; }

bool same_bits(const float* a, const float* b, std::int64_t count) {
  return std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(float)) == 0;
}

struct Shape {
  std::int64_t hidden, intermediate;
};

class Rows : public ::testing::TestWithParam<Recipe> {
 protected:
  Floats run(const LayerOptions& o, const Batch& batch, ThreadPool* pool, const RunOptions& options = {}) const {
    const auto runner = make_reference_runner(pool);
    const Problem problem = problem_of(o, GetParam());
    return run_batch(*runner, *runner->prepare(problem, testing::quantized_weights(o, GetParam())), problem, batch,
                     options);
  }
  Batch batch(const LayerOptions& o, std::int64_t tokens, RoutePattern pattern = RoutePattern::uniform) const {
    return testing::random_batch(o.layer, tokens, compute_type(GetParam()), pattern, 11);
  }
};

TEST_P(Rows, AloneOrInAnyBatchOnAnyNumberOfThreads) {
  ThreadPool two(2), five(5);
  for (const Shape s : {Shape{768, 40}, Shape{2048, 24}, Shape{2880, 16}, Shape{32, 2880}}) {
    const LayerOptions o = layer_options(s.hidden, s.intermediate, ActivationKind::swiglu_oai, true);
    const Batch all = batch(o, 33, RoutePattern::zipf);
    const Floats expected = run(o, all, nullptr);
    EXPECT_TRUE(same_bits(run(o, all, &two).data(), expected.data(), 33 * s.hidden));
    EXPECT_TRUE(same_bits(run(o, all, &five).data(), expected.data(), 33 * s.hidden));
    for (const std::int64_t t : {0, 7, 32}) {
      const Floats alone = run(o, testing::single_row(all, t), &two);
      EXPECT_TRUE(same_bits(alone.data(), expected.data() + t * s.hidden, s.hidden)) << s.hidden << " row " << t;
    }
  }
}

TEST_P(Rows, AtAnyPositionAndAcrossChunks) {
  const LayerOptions o = layer_options(64, 24, ActivationKind::swiglu, false);
  const Batch filler = batch(o, 253);
  const Batch probe = testing::random_batch(o.layer, 8, compute_type(GetParam()), RoutePattern::hot_one, 12);
  const Floats expected = run(o, probe, nullptr);
  // 256 tokens are one chunk of the runner: the probe lies across its end.
  const Floats moved = run(o, testing::concatenate({filler, probe, filler, filler}), nullptr);
  EXPECT_TRUE(same_bits(moved.data() + 253 * 64, expected.data(), 8 * 64));
}

TEST_P(Rows, TheSameInEveryLayoutAndOnRepetition) {
  for (const ActivationKind kind : {ActivationKind::geglu_erf, ActivationKind::relu2}) {
    LayerOptions o = layer_options(96, 40, kind, true);
    o.dtype = compute_type(GetParam());
    const Batch b = batch(o, 5);
    const Floats expected = run(o, b, nullptr);
    EXPECT_TRUE(same_bits(run(o, b, nullptr).data(), expected.data(), 5 * 96));
    for (const WeightLayout layout :
         {WeightLayout::padded, WeightLayout::transposed, WeightLayout::interleaved, WeightLayout::gpt_oss}) {
      o.layout = layout;
      EXPECT_TRUE(same_bits(run(o, b, nullptr).data(), expected.data(), 5 * 96)) << static_cast<int>(layout);
    }
  }
}

TEST_P(Rows, NaNInOneRowStaysInThatRow) {
  const LayerOptions o = layer_options(64, 24, ActivationKind::swiglu, false);
  Batch b = batch(o, 9, RoutePattern::hot_one);
  const Floats expected = run(o, b, nullptr);
  testing::detail::store(b.hidden.data(), b.dtype, 4 * 64 + 3, NAN);
  const Floats got = run(o, b, nullptr);
  for (std::int64_t t = 0; t < 9; ++t) {
    const bool same = same_bits(got.data() + t * 64, expected.data() + t * 64, 64);
    EXPECT_EQ(same, t != 4) << t;
  }
  EXPECT_TRUE(std::isnan(got[4 * 64]));
}

TEST_P(Rows, NaNInOneExpertStaysWithItsTokens) {
  const LayerOptions o = layer_options(64, 24, ActivationKind::swiglu, false);
  const Batch b = batch(o, 20);
  const Floats expected = run(o, b, nullptr);
  ExpertWeights w = testing::quantized_weights(o, GetParam());
  testing::poison_first_row(w.up[2]);
  const auto runner = make_reference_runner(nullptr);
  const Problem problem = problem_of(o, GetParam());
  const Floats got = run_batch(*runner, *runner->prepare(problem, std::move(w)), problem, b);
  int touched = 0;
  for (std::int64_t t = 0; t < 20; ++t) {
    const SlotId* ids = b.ids.data() + t * 3;
    const bool uses = std::find(ids, ids + 3, SlotId{2}) != ids + 3;
    EXPECT_EQ(std::isnan(got[t * 64]), uses) << t;
    EXPECT_EQ(same_bits(got.data() + t * 64, expected.data() + t * 64, 64), !uses) << t;
    touched += uses ? 1 : 0;
  }
  EXPECT_GT(touched, 2);
  EXPECT_LT(touched, 18);
}

// Partial sums of two ranks that hold three experts each add up to the whole; fp32 sums of few terms, so nearly.
TEST_P(Rows, SlotRangesSplitTheRoutes) {
  const LayerOptions o = layer_options(64, 24, ActivationKind::swiglu, false);
  const Batch b = batch(o, 12);
  RunOptions options;
  options.output = OutputKind::routes_f32;
  const Floats whole = run(o, b, nullptr, options);
  const auto runner = make_reference_runner(nullptr);
  Problem problem = problem_of(o, GetParam());
  Floats sum(whole.size());
  for (const std::int32_t first : {0, 3}) {
    ExpertWeights w = testing::quantized_weights(o, GetParam());
    for (auto* list : {&w.gate, &w.up, &w.down}) *list = {list->begin() + first, list->begin() + first + 3};
    options.slots = {first, 3};
    const Floats part = run_batch(*runner, *runner->prepare(problem, std::move(w)), problem, b, options);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];  // one of the two is zero: exact
  }
  EXPECT_TRUE(same_bits(sum.data(), whole.data(), static_cast<std::int64_t>(whole.size())));
}

INSTANTIATE_TEST_SUITE_P(Recipes, Rows, ::testing::ValuesIn(testing::all_recipes()),
                         [](const auto& test) { return testing::recipe_test_name(test.param); });

// What prepare and run refuse.
struct Refusing : ::testing::Test {
  LayerOptions o = layer_options(16, 8, ActivationKind::swiglu, true);
  std::unique_ptr<Runner> runner = make_reference_runner(nullptr);
  Problem problem = problem_of(o, Recipe::bf16);
  ExpertWeights weights = testing::random_weights(o);

  std::string refusal() {
    try {
      runner->prepare(problem, std::move(weights));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      return error.what();
    }
    return "";
  }
};

TEST_F(Refusing, AMissingGate) {
  weights.gate.pop_back();
  EXPECT_NE(refusal().find("5 gate matrices"), std::string::npos);
}

TEST_F(Refusing, AWrongShapeNamesListAndExpert) {
  weights.down[3].codes.cols = 9;
  EXPECT_NE(refusal().find("down of expert 3 has shape [16, 9]; expected [16, 8]"), std::string::npos);
}

TEST_F(Refusing, AMissingOrSuperfluousBias) {
  weights.down_bias[1].count = 15;
  EXPECT_NE(refusal().find("down bias of expert 1"), std::string::npos);
  weights = testing::random_weights(o);
  problem.layer.has_bias = false;
  EXPECT_NE(refusal().find("gate bias"), std::string::npos);
}

TEST_F(Refusing, QuantisedWeightsInTheBf16Recipe) {
  weights.up[0].codes.dtype = DType::e4m3;
  EXPECT_THROW(runner->prepare(problem, std::move(weights)), Error);
}

class OtherExperts final : public PreparedExperts {
 public:
  std::int64_t resident_bytes() const override { return 0; }
};

TEST_F(Refusing, ExpertsOfAnotherRunner) {
  OtherExperts other;
  EXPECT_THROW(runner->run(other, RunArgs{}), Error);
  EXPECT_THROW(runner->reload(other, std::move(weights)), Error);
}

TEST_F(Refusing, ArgumentsThatDoNotFit) {
  const auto prepared = runner->prepare(problem, std::move(weights));
  const Batch good = testing::random_batch(o.layer, 2, DType::bf16, RoutePattern::uniform, 1);
  EXPECT_NO_THROW(run_batch(*runner, *prepared, problem, good));
  Batch wrong_type = testing::random_batch(o.layer, 2, DType::f32, RoutePattern::uniform, 1);
  EXPECT_THROW(run_batch(*runner, *prepared, problem, wrong_type), Error);
  RunOptions fewer;
  fewer.slots = {0, 5};
  EXPECT_THROW(run_batch(*runner, *prepared, problem, good, fewer), Error);
  RunArgs both;
  both.hidden = good.view();
  both.ids = good.ids.data();
  both.weights = good.weights.data();
  both.top_k = 3;
  both.slots = {0, 6};
  Workspace none;
  both.workspace = &none;
  EXPECT_THROW(runner->run(*prepared, both), Error);  // neither sum nor routes
}

}  // namespace
}  // namespace sluice
