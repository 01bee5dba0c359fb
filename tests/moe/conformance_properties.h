// What every recipe must keep on every runner, beside the sums that the matrix proves: splits over ranks, repetition,
// workspaces, biases, and the cases that fused-moe-numerics 3.3 lists as missing upstream. Included by one test file a
// runner, which instantiates ConformanceProperties with the ways to make that runner:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, ConformanceProperties, ::testing::ValuesIn(cases), property_name);
//
// A maker returns a runner that may run beside others; what one prepared, all of the same maker read.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "moe/conformance.h"

namespace sluice::testing {

struct PropertyCase {
  Recipe recipe = Recipe::bf16;
  std::string runner;
  std::function<std::shared_ptr<Runner>()> make;
};

inline std::string property_name(const ::testing::TestParamInfo<PropertyCase>& info) {
  return info.param.runner + "_" + recipe_test_name(info.param.recipe);
}

// One layer each.
class ConformanceProperties : public ::testing::TestWithParam<PropertyCase> {
 protected:
  using Floats = std::vector<float>;

  static Recipe recipe() { return GetParam().recipe; }

  ConformanceRow row{"", recipe(), 6, 128, 128, 8, 2, {}};
  std::shared_ptr<Runner> runner = GetParam().make();
  Problem problem = problem_of(row);
  ExpertWeights weights = many_experts(row, 3);
  Batch batch =
      random_batch(problem.layer, 6, recipe() == Recipe::f32 ? DType::f32 : DType::bf16, RoutePattern::uniform, 4);

  Floats run(const ExpertWeights& w, const Batch& b, const RunOptions& options = {}) const {
    return run_batch(*runner, *runner->prepare(problem, ExpertWeights(w)), problem, b, options);
  }

  static ExpertWeights experts_of(const ExpertWeights& all, std::int64_t first, std::int64_t count) {
    ExpertWeights w = all;
    for (auto* list : {&w.gate, &w.up, &w.down}) {
      if (!list->empty()) *list = {list->begin() + first, list->begin() + first + count};
    }
    return w;
  }
};

TEST_P(ConformanceProperties, A06TwoRunsAreEqual) { EXPECT_EQ(run(weights, batch), run(weights, batch)); }

// A15, B06: the slot rows of all ranks together are those of one, whatever the number of ranks.
TEST_P(ConformanceProperties, A15ExpertParallelRanksTogetherAreTheWhole) {
  RunOptions options;
  options.output = OutputKind::routes_f32;
  const Floats whole = run(weights, batch, options);
  for (const std::int32_t ranks : {2, 4, 8}) {
    Floats sum(whole.size());
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      options.slots = {rank * 8 / ranks, 8 / ranks};
      const Floats part = run(experts_of(weights, options.slots.first, options.slots.count), batch, options);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];  // all but one are zero
    }
    EXPECT_EQ(sum, whole) << ranks;
  }
}

// A16, A17, A19: slices of I of each rank; each rank proves itself, and the partial sums add up to the whole as far as
// one rounding of each slot row to bf16 allows: a rank quantises its part of the intermediate as the whole would be,
// because scales are static or belong to blocks within the slice.
TEST_P(ConformanceProperties, A16TensorParallelRanksAddUp) {
  if (recipe() == Recipe::fp8_block) {
    GTEST_SKIP() << "128 columns are one scale block, which ranks do not split";
  }
  const Floats whole = run(weights, batch);
  for (const std::int64_t ranks : {2, 4}) {
    problem.layer.intermediate = 128 / ranks;
    Floats sum(whole.size()), size(whole.size());
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      ExpertWeights part = weights;
      const std::int64_t first = rank * 128 / ranks;
      const auto rows = [&](QuantTensor& t) {
        t.codes.data =
            static_cast<const std::byte*>(t.codes.data) + dtype_bytes(t.codes.dtype, first * t.codes.row_stride);
        t.codes.rows = 128 / ranks;
        if (t.block_scale.data == nullptr) return;
        t.block_scale.data =
            static_cast<const std::byte*>(t.block_scale.data) +
            dtype_bytes(t.block_scale.dtype, first / t.block_scale.block_rows * t.block_scale.row_stride);
      };
      const auto cols = [&](QuantTensor& t) {
        t.codes.data = static_cast<const std::byte*>(t.codes.data) + dtype_bytes(t.codes.dtype, first);
        t.codes.cols = 128 / ranks;
        if (t.block_scale.data == nullptr) return;
        t.block_scale.data = static_cast<const std::byte*>(t.block_scale.data) +
                             dtype_bytes(t.block_scale.dtype, first / t.block_scale.block_cols);
      };
      for (std::size_t e = 0; e < 8; ++e) {
        rows(part.gate[e]);
        rows(part.up[e]);
        cols(part.down[e]);
      }
      const ProofReport report = staged_proof(*runner, problem, part, batch);
      EXPECT_TRUE(report.ok()) << report.text();
      const Floats partial = run(part, batch);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += partial[i];
        size[i] += std::fabs(partial[i]);
      }
    }
    double error = 0.0, norm = 0.0, sizes = 0.0;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      error += std::pow(sum[i] - whole[i], 2);
      norm += std::pow(whole[i], 2);
      sizes += std::pow(size[i], 2);
    }
    // Each partial slot row and the whole one are rounded once.
    const double slot = tolerance::unit_roundoff(recipe_info(recipe()).slot_dtype);
    const double bound = slot * (std::sqrt(sizes) + std::sqrt(norm)) + 1e-5 * std::sqrt(sizes);
    EXPECT_LE(std::sqrt(error), bound) << ranks;
    problem.layer.intermediate = 128;
  }
}

TEST_P(ConformanceProperties, A60WorkspaceIsPositiveMonotoneAndExact) {
  std::size_t before = 0;
  for (const std::int64_t tokens : {1, 2, 64, 255, 256}) {
    const std::size_t bytes = runner->workspace_bytes(problem, tokens);
    EXPECT_GT(bytes, 0u);
    EXPECT_GE(bytes, before);
    before = bytes;
  }
  EXPECT_GE(runner->workspace_bytes(problem, 8192), before);
  const auto prepared = runner->prepare(problem, ExpertWeights(weights));
  for (const bool enough : {true, false}) {
    const Buffer scratch = host_buffer(runner->workspace_bytes(problem, 6));
    Workspace workspace(scratch.data(), enough ? scratch.bytes() : scratch.bytes() / 2);
    Floats out(6 * 128);
    RunArgs args;
    args.hidden = batch.view();
    args.ids = batch.ids.data();
    args.weights = batch.weights.data();
    args.top_k = 2;
    args.slots = {0, 8};
    args.sum = dense_view(out.data(), DType::f32, 6, 128);
    args.workspace = &workspace;
    bool refused = false;
    try {
      runner->run(*prepared, args);
    } catch (const Error& error) {
      refused = error.code() == ErrorCode::resources;
    }
    EXPECT_EQ(refused, !enough);
  }
}

TEST_P(ConformanceProperties, C10EachBiasChangesTheOutput) {
  row.bias = true;
  problem = problem_of(row);
  weights = many_experts(row, 3);
  const Floats all = run(weights, batch);
  const Floats zeros(128, 0.0f);
  for (auto* list : {&weights.gate_bias, &weights.up_bias, &weights.down_bias}) {
    const std::vector<BiasView> saved = *list;
    for (BiasView& bias : *list) bias = {zeros.data(), DType::f32, bias.count, 1};
    EXPECT_NE(run(weights, batch), all);
    *list = saved;
  }
}

TEST_P(ConformanceProperties, C11ZeroInputGivesZero) {
  std::fill(batch.hidden.begin(), batch.hidden.end(), std::byte{0});
  EXPECT_EQ(run(weights, batch), Floats(6 * 128, 0.0f));
}

TEST_P(ConformanceProperties, G01NoTokensAndRanksWithoutRoutes) {
  const Batch none = random_batch(problem.layer, 0, batch.dtype, RoutePattern::uniform, 1);
  EXPECT_EQ(run(weights, none), Floats{});
  for (SlotId& id : batch.ids) id = SlotId{7};
  RunOptions options;
  options.slots = {0, 4};
  EXPECT_EQ(run(experts_of(weights, 0, 4), batch, options), Floats(6 * 128, 0.0f));
}

// Missing upstream: duplicates within a token, -1 and foreign ids, an earlier output in the same memory.
TEST_P(ConformanceProperties, DuplicatesAndForeignIds) {
  batch.ids[0] = batch.ids[1] = SlotId{3};
  batch.ids[2] = SlotId{-1};
  batch.ids[5] = SlotId{1000000};
  batch.ids[6] = batch.ids[7] = SlotId{-1};
  const ProofReport report = staged_proof(*runner, problem, weights, batch);
  EXPECT_TRUE(report.ok()) << report.text();
  const Floats out = run(weights, batch);
  for (int c = 0; c < 128; ++c) EXPECT_EQ(out[3 * 128 + c], 0.0f);
  RunOptions routes;
  routes.output = OutputKind::routes_f32;
  const Floats rows = run(weights, batch, routes);
  for (int c = 0; c < 128; ++c) EXPECT_EQ(rows[c], rows[128 + c]);
}

TEST_P(ConformanceProperties, WeightOnTheInput) {
  row.top_k = 1;
  problem = problem_of(row);
  problem.layer.weight_on_input = true;
  batch = random_batch(problem.layer, 6, batch.dtype, RoutePattern::uniform, 4);
  for (std::int64_t t = 0; t < 6; ++t) batch.weights[t] = 0.3f + 0.1f * static_cast<float>(t);
  const ProofReport report = staged_proof(*runner, problem, weights, batch);
  EXPECT_TRUE(report.ok()) << report.text();
}

TEST_P(ConformanceProperties, TheGateAlphaMattersWhereTensorScalesAre) {
  const Floats own = run(weights, batch);
  problem.upstream_gate_alpha = true;
  const std::set<Recipe> with_tensor_scales = {Recipe::fp8_tensor, Recipe::nvfp4_w4a16, Recipe::nvfp4_w4a4_cutedsl,
                                               Recipe::nvfp4_w4a4_cutlass};
  EXPECT_EQ(run(weights, batch) != own, with_tensor_scales.count(recipe()) == 1);
  const ProofReport report = staged_proof(*runner, problem, weights, batch);
  EXPECT_TRUE(report.ok()) << report.text();
}

TEST_P(ConformanceProperties, ConcurrentRunsWithWorkspacesOfTheirOwn) {
  const auto prepared = runner->prepare(problem, ExpertWeights(weights));
  const Floats expected = run_batch(*runner, *prepared, problem, batch);
  std::vector<Floats> got(3);
  std::vector<std::thread> threads;
  for (Floats& out : got) {
    threads.emplace_back([&, own = GetParam().make()] { out = run_batch(*own, *prepared, problem, batch); });
  }
  for (std::thread& t : threads) t.join();
  for (const Floats& out : got) EXPECT_EQ(out, expected);
}

// A token that is NaN or infinite takes nobody with it, not even tokens of the same experts.
TEST_P(ConformanceProperties, NanAndInfinityStayInTheirToken) {
  for (SlotId& id : batch.ids) id = SlotId{raw(id) % 2};
  for (std::int64_t t = 0; t < 6; ++t) batch.ids[2 * t + 1] = SlotId{1 - raw(batch.ids[2 * t])};
  const Floats clean = run(weights, batch);
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Batch dirty = batch;
    detail::store(dirty.hidden.data(), dirty.dtype, 2 * 128 + 77, poison);
    const Floats out = run(weights, dirty);
    for (int i = 0; i < 6 * 128; ++i) {
      if (i / 128 == 2) continue;
      ASSERT_EQ(out[i], clean[i]) << i;
    }
    const bool nan = std::isnan(poison);
    for (int c = 0; nan && c < 128; ++c) ASSERT_TRUE(std::isnan(out[2 * 128 + c])) << c;
  }
}

// Rows that start at any element, with gaps that are neither read nor written.
TEST_P(ConformanceProperties, UnalignedStrides) {
  constexpr std::int64_t kIn = 131, kOut = 137;
  const auto element = static_cast<std::size_t>(dtype_bytes(batch.dtype, 1));
  std::vector<std::byte> hidden((6 * kIn + 1) * element, std::byte{0xFF});  // NaN in every type
  for (std::size_t t = 0; t < 6; ++t) {
    std::copy_n(batch.hidden.begin() + t * 128 * element, 128 * element, hidden.begin() + (1 + t * kIn) * element);
  }
  Floats out(6 * kOut, 7.0f);
  const auto prepared = runner->prepare(problem, ExpertWeights(weights));
  const Buffer scratch = host_buffer(runner->workspace_bytes(problem, 6));
  Workspace workspace(scratch.data(), scratch.bytes());
  RunArgs args;
  args.hidden = {hidden.data() + element, batch.dtype, 6, 128, kIn};
  args.ids = batch.ids.data();
  args.weights = batch.weights.data();
  args.top_k = 2;
  args.slots = {0, 8};
  args.sum = {out.data() + 1, DType::f32, 6, 128, kOut};
  args.workspace = &workspace;
  runner->run(*prepared, args);
  const Floats want = run(weights, batch);
  for (std::int64_t i = 0; i < 6 * kOut; ++i) {
    const std::int64_t t = (i - 1) / kOut, c = (i - 1) % kOut;
    ASSERT_EQ(out[i], i > 0 && c < 128 ? want[t * 128 + c] : 7.0f) << i;
  }
}

// An earlier run with the same memory leaves nothing behind: rows of more tokens and other experts came before.
TEST_P(ConformanceProperties, NothingIsLeftOfAnEarlierRun) {
  const auto prepared = runner->prepare(problem, ExpertWeights(weights));
  const Buffer scratch = host_buffer(runner->workspace_bytes(problem, 6));
  Floats out(6 * 128);
  const auto run_in_place = [&](const Batch& b) {
    Workspace workspace(scratch.data(), scratch.bytes());
    RunArgs args;
    args.hidden = b.view();
    args.ids = b.ids.data();
    args.weights = b.weights.data();
    args.top_k = 2;
    args.slots = {0, 8};
    args.sum = dense_view(out.data(), DType::f32, b.tokens, 128);
    args.workspace = &workspace;
    runner->run(*prepared, args);
  };
  Batch few = random_batch(problem.layer, 4, batch.dtype, RoutePattern::hot_one, 9);
  few.ids[2] = few.ids[3] = SlotId{-1};
  const Floats want = run(weights, few);
  run_in_place(batch);
  run_in_place(few);
  EXPECT_EQ(Floats(out.begin(), out.begin() + 4 * 128), want);
}

}  // namespace sluice::testing
