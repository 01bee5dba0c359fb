// The conformance matrix on the reference runner, its rows about splits, repetition and workspaces, and the cases that
// are missing upstream.
#include "moe/conformance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <set>
#include <thread>

#include "core/error.h"
#include "moe/reference_runner.h"

namespace sluice {
namespace {

using testing::Batch;
using testing::ConformanceResult;
using testing::ConformanceRow;
using testing::OutputKind;
using testing::RoutePattern;
using Floats = std::vector<float>;

constexpr std::int64_t kBudget = 4'000'000;  // multiplications a row; the reference needs about 1 ns for each

class Conformance : public ::testing::TestWithParam<ConformanceRow> {};

TEST_P(Conformance, StagedProof) {
  const auto runner = make_reference_runner(nullptr);
  const ConformanceResult result = testing::run_conformance(*runner, GetParam(), kBudget);
  EXPECT_TRUE(result.ok()) << result.text();
  EXPECT_EQ(result.run.hidden, GetParam().hidden);
  EXPECT_EQ(result.run.experts, GetParam().experts);
}

std::string row_name(const ::testing::TestParamInfo<ConformanceRow>& info) {
  std::string name = info.param.id;
  for (char& c : name) c = c == ' ' ? '_' : c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Matrix, Conformance, ::testing::ValuesIn(testing::conformance_rows()), row_name);

TEST(ConformanceTable, RowsAreDistinctAndSkippedOnesHaveAReason) {
  std::set<std::string> ids;
  for (const ConformanceRow& row : testing::conformance_rows()) EXPECT_TRUE(ids.insert(row.id).second) << row.id;
  for (const testing::SkippedRow& row : testing::skipped_rows()) {
    EXPECT_TRUE(ids.insert(row.id).second) << row.id;
    EXPECT_FALSE(row.reason.empty());
    std::printf("skipped %s: %s\n", row.id.c_str(), row.reason.c_str());
  }
}

// E01: sizes, routings and recipes drawn at random.
TEST(ConformanceFuzz, E01) {
  testing::Random random(515);
  const auto pick = [&](const std::vector<std::int64_t>& from) {
    return from[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(from.size())))];
  };
  const auto runner = make_reference_runner(nullptr);
  for (int i = 0; i < 27; ++i) {
    ConformanceRow row;
    row.recipe = testing::all_recipes()[static_cast<std::size_t>(i) % 9];
    row.tokens = pick({1, 2, 3, 7, 17, 64, 127, 129});
    row.hidden = pick({256, 768, 1024, 2048, 3072});
    row.intermediate = pick({256, 384, 768, 1536});
    row.experts = static_cast<std::int32_t>(pick({8, 40, 128, 256, 512}));
    row.top_k = static_cast<std::int32_t>(pick({1, 2, 4, 6, 8}));
    row.routes = static_cast<RoutePattern>(random.below(4));
    const ConformanceResult result = testing::run_conformance(*runner, row, kBudget, 100 + i);
    EXPECT_TRUE(result.ok()) << recipe_info(row.recipe).name << " " << result.text();
  }
}

// I per rank that ends inside blocks and segments; H = 2880; numbers of experts that are no power of two.
TEST(ConformanceSizes, WidthsOfRanksAndExpertCounts) {
  const auto runner = make_reference_runner(nullptr);
  for (const Recipe recipe : testing::all_recipes()) {
    std::size_t i = 0;
    for (const std::int64_t intermediate : {96, 192, 232, 1440, 720, 704, 736}) {
      constexpr std::int32_t kExperts[] = {5, 36, 40, 160, 288};
      ConformanceRow row{"", recipe, 1, i % 2 == 0 ? 2880 : 160, intermediate, kExperts[i % 5], 1, {}};
      ++i;
      const ConformanceResult result = testing::run_conformance(*runner, row, 1'000'000'000);
      EXPECT_TRUE(result.ok()) << recipe_info(recipe).name << " " << result.text();
    }
  }
}

// Properties of all recipes on one layer each.
class EveryRecipe : public ::testing::TestWithParam<Recipe> {
 protected:
  ConformanceRow row{"", GetParam(), 6, 128, 128, 8, 2, {}};
  std::unique_ptr<Runner> runner = make_reference_runner(nullptr);
  Problem problem = testing::problem_of(row);
  ExpertWeights weights = testing::many_experts(row, 3);
  Batch batch = testing::random_batch(problem.layer, 6, GetParam() == Recipe::f32 ? DType::f32 : DType::bf16,
                                      RoutePattern::uniform, 4);

  Floats run(const ExpertWeights& w, const Batch& b, const testing::RunOptions& options = {}) const {
    return testing::run_batch(*runner, *runner->prepare(problem, ExpertWeights(w)), problem, b, options);
  }

  static ExpertWeights experts_of(const ExpertWeights& all, std::int64_t first, std::int64_t count) {
    ExpertWeights w = all;
    for (auto* list : {&w.gate, &w.up, &w.down}) {
      if (!list->empty()) *list = {list->begin() + first, list->begin() + first + count};
    }
    return w;
  }
};

TEST_P(EveryRecipe, A06TwoRunsAreEqual) { EXPECT_EQ(run(weights, batch), run(weights, batch)); }

// A15, B06: the slot rows of all ranks together are those of one, whatever the number of ranks.
TEST_P(EveryRecipe, A15ExpertParallelRanksTogetherAreTheWhole) {
  testing::RunOptions options;
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
TEST_P(EveryRecipe, A16TensorParallelRanksAddUp) {
  if (GetParam() == Recipe::fp8_block) {
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
      const testing::ProofReport report = testing::staged_proof(*runner, problem, part, batch);
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
    const double slot = tolerance::unit_roundoff(recipe_info(GetParam()).slot_dtype);
    const double bound = slot * (std::sqrt(sizes) + std::sqrt(norm)) + 1e-5 * std::sqrt(sizes);
    EXPECT_LE(std::sqrt(error), bound) << ranks;
    problem.layer.intermediate = 128;
  }
}

TEST_P(EveryRecipe, A60WorkspaceIsPositiveMonotoneAndExact) {
  std::size_t before = 0;
  for (const std::int64_t tokens : {1, 2, 64, 255, 256}) {
    const std::size_t bytes = runner->workspace_bytes(problem, tokens);
    EXPECT_GT(bytes, before);
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

TEST_P(EveryRecipe, C10EachBiasChangesTheOutput) {
  row.bias = true;
  problem = testing::problem_of(row);
  weights = testing::many_experts(row, 3);
  const Floats all = run(weights, batch);
  const Floats zeros(128, 0.0f);
  for (auto* list : {&weights.gate_bias, &weights.up_bias, &weights.down_bias}) {
    const std::vector<BiasView> saved = *list;
    for (BiasView& bias : *list) bias = {zeros.data(), DType::f32, bias.count, 1};
    EXPECT_NE(run(weights, batch), all);
    *list = saved;
  }
}

TEST_P(EveryRecipe, C11ZeroInputGivesZero) {
  std::fill(batch.hidden.begin(), batch.hidden.end(), std::byte{0});
  EXPECT_EQ(run(weights, batch), Floats(6 * 128, 0.0f));
}

TEST_P(EveryRecipe, G01NoTokensAndRanksWithoutRoutes) {
  const Batch none = testing::random_batch(problem.layer, 0, batch.dtype, RoutePattern::uniform, 1);
  EXPECT_EQ(run(weights, none), Floats{});
  for (SlotId& id : batch.ids) id = SlotId{7};
  testing::RunOptions options;
  options.slots = {0, 4};
  EXPECT_EQ(run(experts_of(weights, 0, 4), batch, options), Floats(6 * 128, 0.0f));
}

// Missing upstream: duplicates within a token, -1 and foreign ids, an earlier output in the same memory.
TEST_P(EveryRecipe, DuplicatesAndForeignIds) {
  batch.ids[0] = batch.ids[1] = SlotId{3};
  batch.ids[2] = SlotId{-1};
  batch.ids[5] = SlotId{1000000};
  batch.ids[6] = batch.ids[7] = SlotId{-1};
  const testing::ProofReport report = testing::staged_proof(*runner, problem, weights, batch);
  EXPECT_TRUE(report.ok()) << report.text();
  const Floats out = run(weights, batch);
  for (int c = 0; c < 128; ++c) EXPECT_EQ(out[3 * 128 + c], 0.0f);
  testing::RunOptions routes;
  routes.output = OutputKind::routes_f32;
  const Floats rows = run(weights, batch, routes);
  for (int c = 0; c < 128; ++c) EXPECT_EQ(rows[c], rows[128 + c]);
}

TEST_P(EveryRecipe, WeightOnTheInput) {
  row.top_k = 1;
  problem = testing::problem_of(row);
  problem.layer.weight_on_input = true;
  batch = testing::random_batch(problem.layer, 6, batch.dtype, RoutePattern::uniform, 4);
  for (std::int64_t t = 0; t < 6; ++t) batch.weights[t] = 0.3f + 0.1f * static_cast<float>(t);
  const testing::ProofReport report = testing::staged_proof(*runner, problem, weights, batch);
  EXPECT_TRUE(report.ok()) << report.text();
}

TEST_P(EveryRecipe, TheGateAlphaMattersWhereTensorScalesAre) {
  const Floats own = run(weights, batch);
  problem.upstream_gate_alpha = true;
  const std::set<Recipe> with_tensor_scales = {Recipe::fp8_tensor, Recipe::nvfp4_w4a16, Recipe::nvfp4_w4a4_cutedsl,
                                               Recipe::nvfp4_w4a4_cutlass};
  EXPECT_EQ(run(weights, batch) != own, with_tensor_scales.count(GetParam()) == 1);
  const testing::ProofReport report = testing::staged_proof(*runner, problem, weights, batch);
  EXPECT_TRUE(report.ok()) << report.text();
}

TEST_P(EveryRecipe, ConcurrentRunsWithWorkspacesOfTheirOwn) {
  const auto prepared = runner->prepare(problem, ExpertWeights(weights));
  const Floats expected = testing::run_batch(*runner, *prepared, problem, batch);
  std::vector<Floats> got(3);
  std::vector<std::thread> threads;
  for (Floats& out : got) {
    threads.emplace_back([&] { out = testing::run_batch(*runner, *prepared, problem, batch); });
  }
  for (std::thread& t : threads) t.join();
  for (const Floats& out : got) EXPECT_EQ(out, expected);
}

INSTANTIATE_TEST_SUITE_P(Recipes, EveryRecipe, ::testing::ValuesIn(testing::all_recipes()),
                         [](const auto& test) { return testing::recipe_test_name(test.param); });

}  // namespace
}  // namespace sluice
