// The staged proof must notice what it is for: a runner that computes correctly but was given something wrong has to
// fail at the stage where that shows, because the proof holds the right weights.
#include <gtest/gtest.h>

#include <utility>

#include "moe/reference_runner.h"
#include "moe/staged_proof.h"

namespace sluice {
namespace {

using testing::Batch;
using testing::LayerOptions;
using testing::ProofReport;

struct Faulty : ::testing::Test {
  std::unique_ptr<Runner> runner = make_reference_runner(nullptr);
  LayerOptions o;
  Problem problem;
  Batch batch;

  void make(Recipe recipe) {
    problem = testing::proof_problem(recipe, ActivationKind::swiglu, false, {256, 64, 4, 3, 2});
    o.layer = problem.layer;
    batch = testing::random_batch(o.layer, 4, DType::bf16, testing::RoutePattern::uniform, 5);
  }

  ProofReport prove_with(const Problem& run_problem, const ExpertWeights& run_weights) const {
    testing::StageDump dump;
    testing::RunOptions options;
    options.stages = &dump;
    const auto prepared = runner->prepare(run_problem, ExpertWeights(run_weights));
    const auto output = testing::run_batch(*runner, *prepared, run_problem, batch, options);
    const ExpertWeights right = testing::quantized_weights(o, problem.recipe);
    return testing::StagedProof(problem, right, batch).check(dump, output);
  }

  template <class Change>
  ProofReport prove_changed(Recipe recipe, Change change) {
    make(recipe);
    ExpertWeights wrong = testing::quantized_weights(o, recipe);
    change(wrong);
    return prove_with(problem, wrong);
  }
};

TEST_F(Faulty, NothingIsWrong) {
  for (const Recipe recipe : testing::all_recipes()) {
    if (recipe == Recipe::f32) continue;
    const ProofReport report = prove_changed(recipe, [](ExpertWeights&) {});
    EXPECT_TRUE(report.ok()) << report.text();
  }
}

TEST_F(Faulty, TensorScalesOfGateAndUpSwapped) {
  for (const Recipe recipe : {Recipe::fp8_tensor, Recipe::nvfp4_w4a16, Recipe::nvfp4_w4a4_cutedsl}) {
    const ProofReport report = prove_changed(recipe, [](ExpertWeights& w) {
      for (std::size_t e = 0; e < w.up.size(); ++e) std::swap(w.gate[e].tensor_scale, w.up[e].tensor_scale);
    });
    EXPECT_TRUE(report.failed_at("gate") && report.failed_at("up")) << report.text();
  }
}

TEST_F(Faulty, TensorScaleTakenAsItsReciprocal) {
  const ProofReport report = prove_changed(Recipe::nvfp4_w4a4_cutlass, [](ExpertWeights& w) {
    for (QuantTensor& t : w.down) t.tensor_scale = 1.0f / t.tensor_scale;
  });
  EXPECT_TRUE(report.failed_at("slot_rows") && !report.failed_at("up")) << report.text();
}

TEST_F(Faulty, BlockScalesOfTheNextBlock) {
  for (const Recipe recipe : {Recipe::fp8_block, Recipe::nvfp4_w4a16, Recipe::mxfp4_w4a8, Recipe::mxfp4_w4a16}) {
    const ProofReport report = prove_changed(recipe, [&](ExpertWeights& w) {
      BlockScaleView& scale = w.up[1].block_scale;
      scale.data = static_cast<const std::byte*>(scale.data) + dtype_bytes(scale.dtype, 1);
      scale.row_stride = 0;  // stays inside of the matrix
      if (recipe == Recipe::fp8_block) scale.col_stride = 0;
    });
    EXPECT_TRUE(report.failed_at("up") && !report.failed_at("gate")) << report.text();
  }
}

TEST_F(Faulty, InputScales) {
  for (const Recipe recipe : {Recipe::fp8_tensor, Recipe::nvfp4_w4a4_cutedsl}) {
    const ProofReport reciprocal = prove_changed(recipe, [](ExpertWeights& w) {
      for (auto* list : {&w.input_scales.gate, &w.input_scales.up}) {
        for (float& s : *list) s = 1.0f / s;
      }
    });
    EXPECT_TRUE(reciprocal.failed_at("gemm1_input.scales")) << reciprocal.text();
    const ProofReport of_gate_only =
        prove_changed(recipe, [](ExpertWeights& w) { w.input_scales.up = w.input_scales.gate; });
    EXPECT_TRUE(of_gate_only.failed_at("gemm1_input.scales")) << of_gate_only.text();
    const ProofReport of_few_experts = prove_changed(recipe, [](ExpertWeights& w) { w.input_scales.down.pop_back(); });
    EXPECT_TRUE(of_few_experts.failed_at("intermediate.scales")) << of_few_experts.text();
  }
}

TEST_F(Faulty, RoundingPointsOfTheOtherW4a4Recipe) {
  for (const bool cutlass : {false, true}) {
    make(cutlass ? Recipe::nvfp4_w4a4_cutlass : Recipe::nvfp4_w4a4_cutedsl);
    Problem other = problem;
    other.recipe = cutlass ? Recipe::nvfp4_w4a4_cutedsl : Recipe::nvfp4_w4a4_cutlass;
    const ProofReport report = prove_with(other, testing::quantized_weights(o, problem.recipe));
    EXPECT_TRUE(report.failed_at("gate") && report.failed_at("up")) << report.text();
    EXPECT_FALSE(report.failed_at("gemm1_input"));
  }
}

TEST_F(Faulty, TheGateAlphaForUp) {
  make(Recipe::nvfp4_w4a4_cutedsl);
  Problem upstream = problem;
  upstream.upstream_gate_alpha = true;
  const ProofReport report = prove_with(upstream, testing::quantized_weights(o, problem.recipe));
  EXPECT_TRUE(report.failed_at("up") && !report.failed_at("gate")) << report.text();
}

// Codes one step towards zero, as a quantiser that truncates gives half of them.
TEST_F(Faulty, RoundingModeOfTheIntermediate) {
  make(Recipe::mxfp4_w4a8);
  const ExpertWeights weights = testing::quantized_weights(o, problem.recipe);
  testing::StageDump dump;
  testing::RunOptions options;
  options.stages = &dump;
  const auto prepared = runner->prepare(problem, ExpertWeights(weights));
  const auto output = testing::run_batch(*runner, *prepared, problem, batch, options);
  auto codes = dump.row<std::uint8_t>("intermediate.codes", 0);
  for (std::uint8_t& c : codes) c = (c & 0x7Fu) > 0 ? static_cast<std::uint8_t>(c - 1) : c;
  const std::int64_t route = 0;
  dump.record("intermediate.codes", dense_view(codes.data(), DType::u8, 1, static_cast<std::int64_t>(codes.size())),
              &route);
  const ProofReport report = testing::StagedProof(problem, weights, batch).check(dump, output);
  EXPECT_TRUE(report.failed_at("intermediate") && !report.failed_at("up")) << report.text();
}

}  // namespace
}  // namespace sluice
