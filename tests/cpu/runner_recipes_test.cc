// Every quantised recipe on the CPU runner: the staged proof of each activation, bias, shape and number of rows, and
// the sums of GEMM1 bit for bit where a unit adds as the reference runner does.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "cpu/runner_harness.h"
#include "moe/quantized_layer.h"
#include "moe/reference_runner.h"
#include "moe/staged_proof.h"
#include "moe/stages.h"

namespace sluice::cpu {
namespace {

using sluice::testing::Batch;
using sluice::testing::FormatOptions;
using sluice::testing::OutputKind;
using sluice::testing::ProofReport;
using sluice::testing::quantized_weights;
using sluice::testing::random_batch;
using sluice::testing::RoutePattern;
using sluice::testing::run_batch;
using sluice::testing::staged_proof;
using testing::recipe_problem;
using testing::Row;
using testing::StageRows;

class RunnerRecipes : public ::testing::TestWithParam<std::tuple<Isa, Recipe>> {
 protected:
  Isa isa() const { return std::get<0>(GetParam()); }
  Recipe recipe() const { return std::get<1>(GetParam()); }
  void prove(const Problem& problem, std::int64_t tokens, const FormatOptions& format = {}) {
    SCOPED_TRACE("H " + std::to_string(problem.layer.hidden) + " I " + std::to_string(problem.layer.intermediate) +
                 " " + std::string(activation_name(problem.layer.activation.kind)));
    const ExpertWeights weights = quantized_weights({problem.layer}, recipe(), format);
    const Batch batch = random_batch(problem.layer, tokens, DType::bf16, RoutePattern::zipf, 3);
    const auto runner = make_cpu_runner(pool_, isa());
    const ProofReport report = staged_proof(*runner, problem, weights, batch);
    ASSERT_TRUE(report.ok()) << report.text();
    compare_sums(*runner, problem, weights, batch);
  }

  // Units other than avx512-bf16 add as the reference does (vdpbf16ps has its own order), so their sums are its bits.
  void compare_sums(const Runner& runner, const Problem& problem, const ExpertWeights& weights, const Batch& batch) {
    if (isa() == Isa::avx512_bf16) return;
    StageRows got, want;
    const auto record = [&](const Runner& r, StageRows& stages) {
      run_batch(r, *r.prepare(problem, ExpertWeights(weights)), problem, batch,
                {OutputKind::sum_f32, {0, -1}, -1, &stages});
    };
    record(runner, got);
    record(*make_reference_runner(&pool_), want);
    for (const std::string_view stage : {stage::kGate, stage::kUp}) ASSERT_EQ(got.of(stage), want.of(stage)) << stage;
  }

  ThreadPool pool_{2};
};

TEST_P(RunnerRecipes, ActivationsAndBiases) {
  for (int kind = 0; kind <= static_cast<int>(ActivationKind::relu2); ++kind) {
    for (const bool bias : {false, true}) {
      Problem problem = recipe_problem(recipe(), 160, 80, 5, 2);
      problem.layer.activation.kind = static_cast<ActivationKind>(kind);
      problem.layer.has_bias = bias;
      prove(problem, 11);
    }
  }
}

// Long rows of both products, and the widths of ranks that are no multiple of a panel, a record or a scale block.
TEST_P(RunnerRecipes, Shapes) {
  constexpr std::int64_t kShapes[][2] = {{768, 96}, {2048, 48}, {2880, 64}, {7168, 32}, {64, 2880},
                                         {96, 720}, {128, 232}, {64, 1440}, {32, 7168}, {48, 192}};
  for (const auto& [hidden, intermediate] : kShapes) prove(recipe_problem(recipe(), hidden, intermediate, 3, 2), 5);
}

// One expert with more rows than are decoded in registers, than a block, than a chunk.
TEST_P(RunnerRecipes, RowCounts) {
  const Problem problem = recipe_problem(recipe(), 192, 64, 1, 1);
  for (const std::int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 13, 100}) prove(problem, tokens);
}

TEST_P(RunnerRecipes, WeightOnInput) {
  Problem problem = recipe_problem(recipe(), 128, 64, 4, 1);
  problem.layer.weight_on_input = true;
  prove(problem, 9);
}

TEST_P(RunnerRecipes, NoTokens) {
  const Problem problem = recipe_problem(recipe(), 64, 32, 2, 1);
  const auto runner = make_cpu_runner(pool_, isa());
  const auto prepared = runner->prepare(problem, quantized_weights({problem.layer}, recipe()));
  EXPECT_TRUE(run_batch(*runner, *prepared, problem, Batch{0, 64, 1, DType::bf16, {}, {}, {}}).empty());
}

TEST_P(RunnerRecipes, FormatsOfScales) {
  const Problem problem = recipe_problem(recipe(), 256, 160, 4, 2);
  if (recipe() == Recipe::fp8_tensor) {
    for (const bool channel : {false, true}) {
      for (const bool fixed : {false, true}) prove(problem, 6, {channel, DType::f32, fixed});
    }
  } else if (recipe() == Recipe::fp8_block) {
    for (const DType type : {DType::f32, DType::bf16, DType::e8m0}) prove(problem, 6, {false, type});
  } else {
    prove(problem, 6);
  }
}

// Block scales that are zero, very small and very large beside usual ones: sums cannot always be kept in units of a
// block. Rows of the batch take another kernel than rows alone.
TEST_P(RunnerRecipes, ScalesFarApart) {
  if (recipe() != Recipe::mxfp4_w4a16 && recipe() != Recipe::mxfp4_w4a8) return;
  const Problem problem = recipe_problem(recipe(), 256, 64, 1, 1);
  for (const int extreme : {0, 40, 90, 140, 170}) {
    const ExpertWeights weights = quantized_weights({problem.layer}, recipe());
    for (const auto* list : {&weights.gate, &weights.up, &weights.down}) {
      if (extreme > 150 && list != &weights.down) continue;  // the product of gate and up would be beyond f32
      auto* scales = static_cast<std::uint8_t*>(const_cast<void*>(list->at(0).block_scale.data));
      for (std::int64_t i = 0; i < list->at(0).codes.rows * list->at(0).codes.cols / 32; i += 5)
        scales[i] = static_cast<std::uint8_t>(extreme);
    }
    const auto runner = make_cpu_runner(pool_, isa());
    const auto prepared = runner->prepare(problem, ExpertWeights(weights));
    const auto reference = make_reference_runner(&pool_);
    const auto reference_prepared = reference->prepare(problem, ExpertWeights(weights));
    const Batch all = random_batch(problem.layer, 20, DType::bf16, RoutePattern::uniform, 3);
    const Row whole = run_batch(*runner, *prepared, problem, all);
    const Row want = run_batch(*reference, *reference_prepared, problem, all);
    double difference = 0.0, size = 0.0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      difference = std::max(difference, std::fabs(static_cast<double>(whole[i]) - want[i]));
      size = std::max(size, std::fabs(static_cast<double>(want[i])));
    }
    EXPECT_LE(difference, 0.02 * size) << extreme;
    for (std::int64_t t = 0; t < all.tokens; ++t) {
      const Row alone = run_batch(*runner, *prepared, problem, sluice::testing::single_row(all, t));
      ASSERT_EQ(alone, Row(whole.begin() + t * 256, whole.begin() + (t + 1) * 256)) << extreme << " row " << t;
    }
  }
}

// Gate and up have tensor scales of their own; FlashInfer's CuteDSL layer uses the gate's for both.
TEST_P(RunnerRecipes, UpstreamGateAlpha) {
  Problem problem = recipe_problem(recipe(), 128, 64, 3, 2);
  const ExpertWeights weights = quantized_weights({problem.layer}, recipe());
  const Batch batch = random_batch(problem.layer, 4, DType::bf16, RoutePattern::uniform, 3);
  const auto up_of = [&](const Runner& runner, bool upstream) {
    problem.upstream_gate_alpha = upstream;
    StageRows stages;
    const auto prepared = runner.prepare(problem, ExpertWeights(weights));
    run_batch(runner, *prepared, problem, batch, {OutputKind::sum_f32, {0, -1}, -1, &stages});
    return stages.of(stage::kUp);
  };
  const auto runner = make_cpu_runner(pool_, Isa::scalar);
  const auto reference = make_reference_runner(&pool_);
  EXPECT_EQ(up_of(*runner, true), up_of(*reference, true));
  const bool matters =
      recipe() != Recipe::fp8_block && recipe() != Recipe::mxfp4_w4a16 && recipe() != Recipe::mxfp4_w4a8;
  EXPECT_EQ(up_of(*runner, true) != up_of(*runner, false), matters);
}

// A NaN in a weight row reaches that output and no other; so does one in a hidden row.
TEST_P(RunnerRecipes, NansStayInTheirRows) {
  const Problem problem = recipe_problem(recipe(), 128, 64, 1, 1);
  const ExpertWeights weights = quantized_weights({problem.layer}, recipe());
  sluice::testing::poison_first_row(weights.down[0]);
  const auto runner = make_cpu_runner(pool_, isa());
  const auto prepared = runner->prepare(problem, ExpertWeights(weights));
  Batch batch = random_batch(problem.layer, 7, DType::bf16, RoutePattern::uniform, 3);
  const Row clean = run_batch(*runner, *prepared, problem, batch);
  reinterpret_cast<Bf16*>(batch.hidden.data())[3 * 128 + 17] = Bf16{0x7FC0};
  const Row dirty = run_batch(*runner, *prepared, problem, batch);
  for (std::int64_t i = 0; i < 7 * 128; ++i) {
    ASSERT_EQ(std::isnan(clean[i]), i % 128 == 0) << i;
    ASSERT_EQ(std::isnan(dirty[i]), i % 128 == 0 || i / 128 == 3) << i;
    if (!std::isnan(dirty[i])) {
      ASSERT_EQ(dirty[i], clean[i]) << i;
    }
  }
}

// Rows alone, and in batches that cross every way of decoding, block and chunk.
TEST_P(RunnerRecipes, RowInvariant) {
  for (const auto& [hidden, intermediate] : {std::pair<std::int64_t, std::int64_t>{2880, 32}, {64, 768}}) {
    if (isa() == Isa::scalar && hidden != 64) continue;
    const Problem problem = recipe_problem(recipe(), hidden, intermediate, 2, 1);
    const auto runner = make_cpu_runner(pool_, isa());
    const auto prepared = runner->prepare(problem, quantized_weights({problem.layer}, recipe()));
    const Batch all = random_batch(problem.layer, 200, DType::bf16, RoutePattern::zipf, 31);
    const Row whole = run_batch(*runner, *prepared, problem, all);
    for (const std::int64_t tokens : {1, 3, 4, 5, 9, 33}) {
      std::vector<Batch> rows;  // the last rows in reverse, so that each stands elsewhere
      for (std::int64_t i = 0; i < tokens; ++i) rows.push_back(sluice::testing::single_row(all, all.tokens - 1 - i));
      const Row output = run_batch(*runner, *prepared, problem, sluice::testing::concatenate(rows));
      for (std::int64_t i = 0; i < tokens; ++i) {
        const auto want = whole.begin() + (all.tokens - 1 - i) * hidden;
        ASSERT_EQ(Row(output.begin() + i * hidden, output.begin() + (i + 1) * hidden), Row(want, want + hidden))
            << tokens << " tokens, row " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RunnerRecipes,
                         ::testing::Combine(::testing::ValuesIn(testing::available_isas()),
                                            ::testing::ValuesIn(testing::quantized_recipes())),
                         [](const auto& p) {
                           return testing::isa_label(std::get<0>(p.param)) + "_" +
                                  sluice::testing::recipe_test_name(std::get<1>(p.param));
                         });

}  // namespace
}  // namespace sluice::cpu
