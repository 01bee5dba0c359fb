// What the runner interface promises at its edges: no tokens, padding, foreign ids, duplicates, NaN, Routes, reload.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "cpu/runner_harness.h"
#include "moe/quantized_layer.h"
#include "moe/reference_runner.h"

namespace sluice::cpu {
namespace {

using sluice::testing::Batch;
using sluice::testing::OutputKind;
using sluice::testing::random_batch;
using sluice::testing::random_weights;
using sluice::testing::RoutePattern;
using sluice::testing::run_batch;
using sluice::testing::RunOptions;
using testing::make_problem;
using testing::Row;

class RunnerEdges : public ::testing::TestWithParam<Isa> {
 protected:
  RunnerEdges() : runner(make_cpu_runner(pool, GetParam())) {
    prepared = runner->prepare(problem, random_weights({problem.layer}));
  }

  Row run(const Batch& b, const RunOptions& options = {}) const {
    return run_batch(*runner, *prepared, problem, b, options);
  }
  Batch batch(std::int64_t tokens) const {
    return random_batch(problem.layer, tokens, DType::bf16, RoutePattern::uniform, 17);
  }
  Row row(const Row& output, std::int64_t r) const {
    const std::int64_t width = problem.layer.width();
    return Row(output.begin() + r * width, output.begin() + (r + 1) * width);
  }

  const Problem problem = make_problem(70, 45, 6, 3);
  const Row zeros = Row(70, 0.0f);
  ThreadPool pool{2};
  std::unique_ptr<Runner> runner;
  std::unique_ptr<PreparedExperts> prepared;
};

TEST_P(RunnerEdges, NoTokens) { EXPECT_TRUE(run(batch(0)).empty()); }

TEST_P(RunnerEdges, RowsBeyondValidTokensAreZero) {
  const Batch b = batch(20);
  const Row whole = run(b), whole_routes = run(b, {OutputKind::routes_f32});
  for (const std::int32_t valid : {0, 1, 7, 20, 1000}) {
    const Row sums = run(b, {OutputKind::sum_bf16, {0, -1}, valid});
    const Row routes = run(b, {OutputKind::routes_f32, {0, -1}, valid});
    for (std::int64_t t = 0; t < 20; ++t) {
      Row want = row(whole, t);
      for (float& v : want) v = round_to_bf16(v);
      EXPECT_EQ(row(sums, t), t < valid ? want : zeros);
      for (std::int64_t s = 0; s < 3; ++s) {
        EXPECT_EQ(row(routes, 3 * t + s), t < valid ? row(whole_routes, 3 * t + s) : zeros);
      }
    }
  }
}

// Skipped ids give zero rows, and the others are not disturbed by them. Weights of skipped slots are not even read.
TEST_P(RunnerEdges, ForeignIds) {
  const Batch clean = batch(12);
  Batch b = clean;
  const std::int32_t foreign[] = {-1, 6, 1 << 30, -(1 << 30)};
  for (std::int64_t t = 0; t < 12; ++t) {
    b.ids[3 * t + t % 3] = SlotId{foreign[t % 4]};
    b.weights[3 * t + t % 3] = __builtin_nanf("");
  }
  for (std::int64_t s = 0; s < 3; ++s) b.ids[3 * 5 + s] = kNoSlot;
  const Row routes = run(b, {OutputKind::routes_f32}), want = run(clean, {OutputKind::routes_f32}), sums = run(b);
  for (std::int64_t r = 0; r < 36; ++r) {
    const bool skipped = r / 3 == 5 || r % 3 == r / 3 % 3;
    EXPECT_EQ(row(routes, r), skipped ? zeros : row(want, r)) << r;
  }
  EXPECT_EQ(row(sums, 5), zeros);
  for (std::int64_t t = 0; t < 12; ++t) {
    for (const float v : row(sums, t)) ASSERT_TRUE(std::isfinite(v));
  }
}

// Two ranks that hold half of the experts each give the rows of the whole between them.
TEST_P(RunnerEdges, SlotRange) {
  const Batch b = batch(15);
  const ExpertWeights all = random_weights({problem.layer});
  const Row want = run(b, {OutputKind::routes_f32});
  std::vector<Row> parts;
  for (const SlotRange slots : {SlotRange{0, 2}, SlotRange{2, 4}}) {
    ExpertWeights part;
    for (std::int32_t e = slots.first; e < slots.first + slots.count; ++e) {
      part.gate.push_back(all.gate[e]);
      part.up.push_back(all.up[e]);
      part.down.push_back(all.down[e]);
    }
    const auto local = runner->prepare(problem, std::move(part));
    parts.push_back(run_batch(*runner, *local, problem, b, {OutputKind::routes_f32, slots}));
  }
  for (std::int64_t r = 0; r < 45; ++r) {
    const bool first = raw(b.ids[r]) < 2;
    EXPECT_EQ(row(parts[first ? 0 : 1], r), row(want, r));
    EXPECT_EQ(row(parts[first ? 1 : 0], r), zeros);
  }
}

// Slot rows are computed for each slot, so an id that comes twice counts twice.
TEST_P(RunnerEdges, Duplicates) {
  Batch b = batch(1);
  b.ids = {SlotId{4}, SlotId{4}, SlotId{4}};
  b.weights = {0.5f, 0.25f, 2.0f};
  const Row routes = run(b, {OutputKind::routes_f32}), sums = run(b);
  EXPECT_EQ(row(routes, 0), row(routes, 1));
  for (std::size_t c = 0; c < sums.size(); ++c) {
    float want = 0.5f * routes[c];
    want += 0.25f * routes[c];
    want += 2.0f * routes[c];
    EXPECT_EQ(sums[c], want);
  }
}

TEST_P(RunnerEdges, NanStaysInItsToken) {
  Batch b = batch(40);
  const Row clean = run(b);
  reinterpret_cast<Bf16*>(b.hidden.data())[23 * 70 + 69] = Bf16{0x7FC0};
  const Row dirty = run(b);
  for (std::int64_t t = 0; t < 40; ++t) {
    if (t == 23) {
      for (const float v : row(dirty, t)) EXPECT_TRUE(std::isnan(v));
    } else {
      EXPECT_EQ(row(dirty, t), row(clean, t));
    }
  }
}

// Infinity times the zero weights that fill up panels is a NaN; it must not reach the rows that exist.
TEST_P(RunnerEdges, PaddingIsNotRead) {
  for (const ActivationKind kind : {ActivationKind::swiglu, ActivationKind::relu2}) {
    Problem tiny = make_problem(1, 1, 1, 1);
    tiny.layer.activation.kind = kind;
    const Bf16 one = to_bf16(1.0f);
    const QuantTensor unit{{&one, DType::bf16, 1, 1, 1, 1}, {}, 1.0f};
    ExpertWeights w;
    if (is_gated(kind)) w.gate = {unit};
    w.up = w.down = {unit};
    const auto experts = runner->prepare(tiny, std::move(w));
    Batch b = random_batch(tiny.layer, 1, DType::bf16, RoutePattern::uniform, 1);
    reinterpret_cast<Bf16*>(b.hidden.data())[0] = Bf16{0x7F80};
    EXPECT_EQ(run_batch(*runner, *experts, tiny, b), Row{std::numeric_limits<float>::infinity()});
  }
}

// Strided hidden rows and outputs; nothing is written between them. Routes in bf16 equal those in f32.
TEST_P(RunnerEdges, StridedViews) {
  const Batch b = batch(5);
  const std::int64_t in_stride = 81, out_stride = 77;
  std::vector<Bf16> hidden(5 * in_stride, Bf16{0x7FC0});
  for (std::int64_t i = 0; i < 5 * 70; ++i) hidden[i / 70 * in_stride + i % 70] = b.view().row<Bf16>(0)[i];
  std::vector<Bf16> out(15 * out_stride, Bf16{0x1234});
  const Buffer scratch = host_buffer(runner->workspace_bytes(problem, 5));
  Workspace workspace(scratch.data(), scratch.bytes());
  RunArgs args;
  args.hidden = {hidden.data(), DType::bf16, 5, 70, in_stride};
  args.ids = b.ids.data();
  args.weights = b.weights.data();
  args.top_k = 3;
  args.slots = {0, 6};
  args.routes = {out.data(), DType::bf16, 15, 70, out_stride};
  args.workspace = &workspace;
  runner->run(*prepared, args);
  const Row want = run(b, {OutputKind::routes_f32});
  for (std::int64_t i = 0; i < 15 * out_stride; ++i) {
    const std::int64_t r = i / out_stride, c = i % out_stride;
    EXPECT_EQ(to_float(out[i]), c < 70 ? want[r * 70 + c] : to_float(Bf16{0x1234}));
  }
}

TEST_P(RunnerEdges, ReloadReplacesTheWeights) {
  const Batch b = batch(9);
  const Row before = run(b);
  const std::int64_t bytes = prepared->resident_bytes();
  runner->reload(*prepared, random_weights({problem.layer, DType::bf16, {}, 99}));
  const Row after = run(b);
  const auto fresh = runner->prepare(problem, random_weights({problem.layer, DType::bf16, {}, 99}));
  EXPECT_EQ(after, run_batch(*runner, *fresh, problem, b));
  EXPECT_NE(after, before);
  EXPECT_EQ(prepared->resident_bytes(), bytes);
}

// workspace_bytes is an upper bound for any routing: run_batch gives exactly that, and running short would throw.
TEST_P(RunnerEdges, WorkspaceBound) {
  for (const std::int64_t tokens : {1, 2, 31, 32, 33, 64, 97, 200}) {
    for (const RoutePattern pattern : {RoutePattern::uniform, RoutePattern::hot_one, RoutePattern::all_to_one}) {
      const Batch b = random_batch(problem.layer, tokens, DType::bf16, pattern, 5);
      EXPECT_NO_THROW(run(b)) << tokens;
    }
  }
}

TEST_P(RunnerEdges, Verdicts) {
  for (Problem p = problem; const Recipe recipe : sluice::testing::all_recipes()) {
    p.recipe = recipe;
    EXPECT_EQ(runner->supports(p).ok, recipe != Recipe::f32) << recipe_info(recipe).name;
  }
  const auto refused = [&](auto change, std::string_view word) {
    Problem p = problem;
    change(p);
    const Verdict v = runner->supports(p);
    EXPECT_FALSE(v.ok);
    EXPECT_NE(v.reason.find(word), std::string::npos) << v.reason;
  };
  refused([](Problem& p) { p.recipe = Recipe::f32; }, "f32");
  refused([](Problem& p) { p.device.kind = DeviceKind::cuda; }, "CPU");
  refused([](Problem& p) { p.graph = true; }, "graph");
  refused([](Problem& p) { p.layer.weight_on_input = true; }, "k = 1");
}

TEST_P(RunnerEdges, RefusesBadInput) {
  const auto code_of = [&](auto body) {
    try {
      body();
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::check_failed;
  };
  ExpertWeights quantised = random_weights({problem.layer});
  quantised.down[3].codes.dtype = DType::e4m3;
  EXPECT_EQ(code_of([&] { runner->prepare(problem, std::move(quantised)); }), ErrorCode::unsupported);
  ExpertWeights missing = random_weights({problem.layer});
  missing.gate.pop_back();
  EXPECT_EQ(code_of([&] { runner->prepare(problem, std::move(missing)); }), ErrorCode::bad_input);
  ExpertWeights fewer = random_weights({make_problem(70, 45, 5, 3).layer});
  EXPECT_EQ(code_of([&] { runner->reload(*prepared, std::move(fewer)); }), ErrorCode::usage);
  const auto other = make_reference_runner(nullptr)->prepare(problem, random_weights({problem.layer}));
  EXPECT_EQ(code_of([&] { run_batch(*runner, *other, problem, batch(1)); }), ErrorCode::usage);
  EXPECT_EQ(code_of([&] { run(batch(1), {OutputKind::sum_f32, {0, 5}}); }), ErrorCode::usage);
}

INSTANTIATE_TEST_SUITE_P(Isa, RunnerEdges, ::testing::ValuesIn(testing::available_isas()),
                         [](const auto& isa) { return testing::isa_label(isa.param); });

}  // namespace
}  // namespace sluice::cpu
