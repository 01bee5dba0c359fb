// MoeLayer: that its parts are called with the right things in the right order. The numbers of the parts have tests of
// their own.
#include "dispatch/moe_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "dispatch/router_backend.h"
#include "moe/reference_runner.h"
#include "moe/runner_harness.h"
#include "moe/stages.h"

namespace sluice {
namespace {

using testing::Batch;
using testing::PlainWeight;
using testing::RouterBackend;
using Floats = std::vector<float>;

// Counts calls and marks the output in combine.
class CountingDispatcher final : public Dispatcher {
 public:
  CountingDispatcher(std::int32_t experts, int* dispatched, int* combined)
      : local_(make_local_dispatcher(experts)), dispatched_(dispatched), combined_(combined) {}
  DispatchKind kind() const override { return DispatchKind::local; }
  std::size_t workspace_bytes(std::int64_t tokens, std::int32_t /*k*/, std::int64_t /*hidden*/) const override {
    return Workspace::rounded_bytes(static_cast<std::size_t>(tokens) * 8);
  }
  Dispatched dispatch(const DispatchInput& input, Workspace& workspace, Stream stream) override {
    ++*dispatched_;
    workspace.take<std::int64_t>(input.hidden.rows);
    return local_->dispatch(input, workspace, stream);
  }
  std::int64_t most_rows(std::int64_t tokens) const override { return tokens; }
  void combine(const TensorView& sum, FunctionRef<void()> meanwhile, Workspace& /*w*/, Stream /*s*/) override {
    meanwhile();
    ++*combined_;
    for (std::int64_t t = 0; t < sum.rows; ++t) sum.row<float>(t)[0] += 1000.0f;
  }

 private:
  std::unique_ptr<Dispatcher> local_;
  int* dispatched_;
  int* combined_;
};

class MoeLayerTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kHidden = 6, kWidth = 4, kExperts = 5;

  MoeLayerTest() {
    options.layer.hidden = kHidden;
    options.layer.expert_width = kWidth;  // experts read something narrower than the router does
    options.layer.intermediate = 3;
    options.layer.routing.experts = kExperts;
    options.layer.routing.top_k = 2;
    options.layer.routing.renormalize = true;
    problem.layer = options.layer;
    problem.recipe = Recipe::f32;
    testing::Random random(9);
    router.resize(kExperts * kHidden);
    for (float& v : router) v = random.symmetric(1.0f);
  }

  MoeLayerParts parts() {
    MoeLayerParts p;
    p.backend = &backend;
    p.runner = runner.get();
    p.problem = problem;
    p.experts = runner->prepare(problem, testing::random_weights(options));
    p.dispatcher = std::make_unique<CountingDispatcher>(kExperts, &dispatched, &combined);
    p.router = std::make_unique<PlainWeight>(kExperts, kHidden, router);
    p.router_bias = host_buffer(kExperts * sizeof(float));
    for (int e = 0; e < kExperts; ++e) p.router_bias.as<float>()[e] = 0.25f * static_cast<float>(e);
    return p;
  }

  // hidden of the router and of the experts for T tokens
  void make_input(std::int64_t tokens) {
    testing::Random random(10);
    wide.resize(static_cast<std::size_t>(tokens * kHidden));
    for (float& v : wide) v = random.symmetric(1.0f);
    batch = testing::random_batch(problem.layer, tokens, DType::f32, testing::RoutePattern::uniform, 3);
    input.hidden = batch.view();
    input.hidden_f32 = dense_view(wide.data(), DType::f32, tokens, kHidden);
  }

  // Runs in a workspace of exactly the announced size.
  Floats forward(const MoeLayer& layer) {
    const std::int64_t tokens = batch.tokens;
    const Buffer memory = host_buffer(layer.workspace_bytes(tokens) + 1);
    Workspace workspace(memory.data(), layer.workspace_bytes(tokens));
    Floats out(static_cast<std::size_t>(tokens * kWidth), -1.0f);
    const MoeRoutes routes = layer.forward(input, dense_view(out.data(), DType::f32, tokens, kWidth), workspace, {});
    ids.assign(routes.ids, routes.ids + tokens * 2);
    weights.assign(routes.weights, routes.weights + tokens * 2);
    return out;
  }

  // What the layer must give for these ids and weights: the runner's sum and combine's mark.
  Floats expected() {
    batch.ids.clear();
    for (const LogicalId id : ids) batch.ids.push_back(SlotId{raw(id)});
    batch.weights = weights;
    const auto prepared = runner->prepare(problem, testing::random_weights(options));
    Floats out = testing::run_batch(*runner, *prepared, problem, batch);
    for (std::int64_t t = 0; t < batch.tokens; ++t) out[t * kWidth] += 1000.0f;
    return out;
  }

  RouterBackend backend;
  std::unique_ptr<Runner> runner = make_reference_runner(nullptr);
  testing::LayerOptions options;
  Problem problem;
  Floats router, wide;
  Batch batch;
  MoeInput input;
  std::vector<LogicalId> ids;
  Floats weights;
  int dispatched = 0, combined = 0;
};

TEST_F(MoeLayerTest, RoutesRunsAndCombines) {
  make_input(7);
  const Floats out = forward(MoeLayer(parts()));
  // The router in float64: the ids of the two largest logits.
  for (std::int64_t t = 0; t < 7; ++t) {
    std::vector<std::pair<double, int>> logits;
    for (int e = 0; e < kExperts; ++e) {
      double y = 0.25 * e;
      for (int c = 0; c < kHidden; ++c) y += static_cast<double>(wide[t * kHidden + c]) * router[e * kHidden + c];
      logits.emplace_back(-y, e);
    }
    std::sort(logits.begin(), logits.end());
    EXPECT_EQ(raw(ids[2 * t]), logits[0].second);
    EXPECT_EQ(raw(ids[2 * t + 1]), logits[1].second);
    EXPECT_NEAR(weights[2 * t], 1 / (1 + std::exp(logits[0].first - logits[1].first)), 1e-6);
  }
  EXPECT_EQ(out, expected());
  EXPECT_EQ(dispatched, 1);
  EXPECT_EQ(combined, 1);
}

TEST_F(MoeLayerTest, TakesGivenIdsAndWeightsAsTheyAre) {
  make_input(2);
  const std::vector<LogicalId> given = {LogicalId{4}, LogicalId{4}, LogicalId{-1}, LogicalId{0}};
  const Floats given_weights = {0.5f, 2.0f, 3.0f, -1.0f};
  input.ids = given.data();
  input.weights = given_weights.data();
  input.hidden_f32 = {};
  const Floats out = forward(MoeLayer(parts()));
  EXPECT_EQ(ids, given);
  EXPECT_EQ(weights, given_weights);
  EXPECT_EQ(out, expected());
  EXPECT_EQ(backend.linear_calls, 0);
}

TEST_F(MoeLayerTest, NoTokensStillDispatchAndCombine) {
  make_input(0);
  EXPECT_EQ(forward(MoeLayer(parts())), Floats{});
  EXPECT_EQ(dispatched, 1);
  EXPECT_EQ(combined, 1);
}

TEST_F(MoeLayerTest, GivesTheWorkspaceBackButForTheRoutes) {
  make_input(3);
  const MoeLayer layer(parts());
  const Buffer memory = host_buffer(1 << 20);
  Workspace workspace(memory.data(), memory.bytes());
  Floats out(3 * kWidth);
  const auto* before = static_cast<const std::byte*>(memory.data());
  layer.forward(input, dense_view(out.data(), DType::f32, 3, kWidth), workspace, {});
  const auto* after = static_cast<const std::byte*>(workspace.take_bytes(1));
  EXPECT_EQ(after - before, 64 * 3);  // ids [3, 2], weights [3, 2], logits [3, 5]: one line each
}

class LogitSink final : public StageSink {
 public:
  std::vector<std::string> stages;
  void record(std::string_view stage, const ConstTensorView& rows, const std::int64_t* route) override {
    stages.emplace_back(stage);
    if (stage == stage::kRouterLogits) {
      EXPECT_EQ(route, nullptr);
      EXPECT_EQ(rows.rows, 3);
      EXPECT_EQ(rows.cols, 5);
    }
  }
};

TEST_F(MoeLayerTest, StagesStartWithTheRouter) {
  make_input(3);
  LogitSink sink;
  input.stages = &sink;
  forward(MoeLayer(parts()));
  EXPECT_EQ(sink.stages,
            (std::vector<std::string>{"router_logits", "gemm1_input", "gate", "up", "intermediate", "slot_rows"}));
}

TEST_F(MoeLayerTest, RefusesMissingPartsAndWrongShapes) {
  MoeLayerParts incomplete = parts();
  incomplete.router = nullptr;
  EXPECT_THROW(MoeLayer(std::move(incomplete)), Error);
  const MoeLayer layer(parts());
  make_input(2);
  input.hidden.cols = kWidth - 1;
  EXPECT_THROW(forward(layer), Error);
  make_input(2);
  input.hidden_f32.cols = kWidth;
  EXPECT_THROW(forward(layer), Error);
}

}  // namespace
}  // namespace sluice
