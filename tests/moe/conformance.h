// The conformance matrix of fused-moe-numerics 3.3 as data, and a function that runs one row on any runner:
//
//   for (const ConformanceRow& row : conformance_rows()) {
//     const ConformanceResult r = run_conformance(runner, row, budget);
//     EXPECT_TRUE(r.ok()) << row.id << "\n" << r.text();
//   }
//
// Each row is proved stage by stage (staged_proof.h), so that its tolerances are the derived ones, element by element;
// all of them lie far below the bars of the matrix. Experts share a few matrices, so that 512 of them cost no memory.
// A budget bounds the multiplications: I shrinks until one token can be checked and T until the batch can be run, while
// H, E, k and the activation stay those of the row; the result says what was run. Of a batch that a fast runner runs
// whole, every n-th token is checked. fp16 rows run as bf16.
#pragma once

#include <string>
#include <vector>

#include "moe/staged_proof.h"

namespace sluice::testing {

struct ConformanceRow {
  std::string id;
  Recipe recipe = Recipe::bf16;
  std::int64_t tokens = 1, hidden = 128, intermediate = 128;
  std::int32_t experts = 2, top_k = 2;
  ActivationSpec activation;
  bool bias = false;
  RoutePattern routes = RoutePattern::uniform;
};

struct SkippedRow {
  std::string id, reason;
};

inline ActivationSpec oai(float alpha, float beta) { return {ActivationKind::swiglu_oai, alpha, beta, 7.0f, 25.0f}; }
inline ActivationSpec situ(float beta, float linear) { return {ActivationKind::situ, 1.702f, beta, 7.0f, linear}; }
inline ActivationSpec plain(ActivationKind kind) { return {kind, 1.702f, 1.0f, 7.0f, 25.0f}; }

inline std::vector<ConformanceRow> conformance_rows() {
  using R = Recipe;
  const ActivationSpec swiglu = plain(ActivationKind::swiglu), step = plain(ActivationKind::swiglu_step);
  const ActivationSpec relu2 = plain(ActivationKind::relu2), gpt = oai(1.702f, 1.0f), half = oai(0.5f, 0.0f);
  const R fp4 = R::nvfp4_w4a4_cutlass, dsl = R::nvfp4_w4a4_cutedsl, w4a16 = R::mxfp4_w4a16, w4a8 = R::mxfp4_w4a8;
  std::vector<ConformanceRow> rows = {{"A01", R::bf16, 1, 128, 128, 2, 2, swiglu},
                                      {"A02", R::bf16, 1, 128, 128, 2, 2, step},
                                      {"A03", R::bf16, 1, 128, 128, 2, 2, situ(4.0f, 25.0f)},
                                      {"A07", R::fp8_tensor, 1, 128, 128, 2, 2, swiglu},
                                      {"A08", R::fp8_tensor, 1, 128, 128, 2, 2, step},
                                      {"A10", fp4, 1, 128, 128, 2, 2, swiglu},
                                      {"A12", fp4, 1, 128, 128, 2, 2, step},
                                      {"A20", R::fp8_block, 1, 128, 128, 2, 2, swiglu},
                                      {"A21", w4a8, 1, 128, 128, 2, 2, swiglu},
                                      {"A22", w4a8, 1, 128, 128, 2, 2, half},
                                      {"A23", w4a8, 1, 128, 128, 2, 2, gpt},
                                      {"A25", w4a16, 1, 128, 128, 2, 2, swiglu},
                                      {"A26", w4a16, 1, 128, 128, 2, 2, half},
                                      {"A27", w4a16, 1, 128, 128, 2, 2, gpt},
                                      {"A31 T1", fp4, 1, 288, 128, 2, 2, swiglu},
                                      {"A31 T4", fp4, 4, 288, 128, 2, 2, swiglu},
                                      {"A32", fp4, 4, 288, 192, 2, 2, swiglu},
                                      {"A33", fp4, 4, 160, 192, 2, 2, swiglu},
                                      {"A35", fp4, 4, 256, 192, 2, 2, swiglu},
                                      {"A37", fp4, 8, 2048, 1024, 128, 8, swiglu},
                                      {"A38", w4a8, 4, 2048, 768, 128, 8, swiglu},
                                      {"A39", w4a16, 1, 128, 128, 2, 2, swiglu},
                                      {"A40", w4a16, 4, 128, 128, 4, 2, swiglu},
                                      {"A41", w4a16, 4, 768, 512, 8, 2, swiglu},
                                      {"A43", w4a16, 4, 4096, 2048, 8, 4, swiglu},
                                      {"A44", w4a16, 1, 4096, 2048, 256, 6, swiglu},
                                      {"A45", w4a16, 4, 2048, 1024, 256, 6, swiglu},
                                      {"A46", w4a16, 4, 4096, 2048, 8, 2, swiglu},
                                      {"A48", w4a16, 4, 4096, 2048, 256, 8, swiglu},
                                      {"A49", w4a16, 4, 4096, 2048, 8, 4, half},
                                      {"A50", w4a16, 4, 4096, 2048, 8, 4, gpt},
                                      {"A51", w4a8, 4, 512, 512, 2, 2, swiglu},
                                      {"A53", w4a8, 4, 512, 512, 2, 2, swiglu},
                                      {"A54", w4a8, 16, 384, 384, 8, 2, swiglu},
                                      {"A56", w4a8, 8, 4096, 256, 256, 1, swiglu},
                                      {"A57", w4a8, 8, 4096, 2048, 32, 1, swiglu},
                                      {"B01", dsl, 128, 256, 512, 256, 2, swiglu},
                                      {"B02", dsl, 515, 1024, 2048, 384, 8, swiglu},
                                      {"B03", dsl, 1024, 1024, 2048, 256, 1, swiglu},
                                      {"B05", R::nvfp4_w4a16, 515, 256, 512, 384, 2, swiglu},
                                      {"B07", dsl, 256, 1024, 2048, 256, 8, swiglu, false, RoutePattern::zipf},
                                      {"B09 relu2", dsl, 128, 256, 512, 256, 2, relu2},
                                      {"B09 situ", dsl, 128, 256, 512, 256, 2, situ(1.75f, 0.0f)},
                                      {"B09 situ linear", dsl, 128, 256, 512, 256, 2, situ(0.8f, 1.5f)},
                                      {"B09 oai", dsl, 128, 256, 512, 256, 2, gpt},
                                      {"D01 T1", R::fp8_block, 1, 7168, 2048, 256, 8, swiglu},
                                      {"D01 T16", R::fp8_block, 16, 7168, 2048, 256, 8, swiglu},
                                      {"D02 k1", R::fp8_block, 8, 2048, 512, 256, 1, swiglu},
                                      {"D02 k8", R::fp8_block, 8, 2048, 512, 256, 8, swiglu},
                                      {"C08", fp4, 128, 1024, 512, 16, 2, swiglu},
                                      {"C10 mxfp4", w4a8, 32, 1024, 512, 8, 2, gpt, true},
                                      {"C10 nvfp4", fp4, 32, 1024, 512, 8, 2, swiglu, true},
                                      {"C11", w4a8, 16, 512, 512, 32, 4, relu2},
                                      {"C11 1024", w4a8, 1, 1024, 1024, 32, 4, relu2}};
  for (const R recipe : {R::bf16, R::fp8_tensor, fp4}) {
    const std::string name = recipe_test_name(recipe);
    rows.push_back({"C01 " + name, recipe, 8, 1024, 1024, 128, 8, swiglu});
    rows.push_back({"C02 " + name, recipe, 3072, 1024, 384, 512, 10, swiglu});
    rows.push_back({"C04 " + name, recipe, 8, 1024, 2688, 512, 22, swiglu});
    rows.push_back({"C05 " + name, recipe, 3072, 1024, 2048, 256, 8, swiglu});
    rows.push_back({"C06 " + name, recipe, 8, 1024, 1024, 384, 8, swiglu});
  }
  return rows;
}

inline std::vector<SkippedRow> skipped_rows() {
  return {{"A04", "activation parameters belong to the layer, not to an expert"},
          {"A14", "4-over-6 block scales are not a recipe of architecture section 5"},
          {"A24", "MXFP8 weights are not a recipe of architecture section 5"},
          {"A28, A29, A58, A59", "int4 is a later recipe"},
          {"A30", "a runner takes linear scales only; the swizzle is tested with the layouts"},
          {"A61, A64, A65, A66, B08", "device workspace, graphs and pointer alignment of a GPU"},
          {"C12", "routing has tests of its own: test_routing.py, routing_test.cc"},
          {"C14", "packed routing is not an input of a runner; ids and weights are always given"},
          {"F01, F02, F03", "NVLink collectives"},
          {"R * 2I > 2^31", "needs more than 8 GB of scratch; all indices are 64 bits wide"}};
}

// Multiplications of one row, at most (but one token of I = 128 is always run and checked).
struct ConformanceBudget {
  std::int64_t run = 0;    // by the runner
  std::int64_t check = 0;  // by the proof, in float64
};

// Rows that are no single layer, and the test that has them.
inline std::vector<SkippedRow> rows_elsewhere() {
  const std::string properties = "conformance_properties.h: ";
  return {{"A06", properties + "A06TwoRunsAreEqual"},
          {"A11", "quantized_input_test.cc: inputs that come quantised"},
          {"A15, B06", properties + "A15ExpertParallelRanksTogetherAreTheWhole, of 2, 4 and 8 ranks"},
          {"A16, A17, A19", properties + "A16TensorParallelRanksAddUp, of 2 and 4 ranks"},
          {"A60, A62, A63", properties + "A60WorkspaceIsPositiveMonotoneAndExact; other memory cannot be passed"},
          {"E01", "fuzz_row"},
          {"G01", properties + "G01NoTokensAndRanksWithoutRoutes"}};
}

// Every row of the table in fused-moe-numerics 3.3.
inline const std::vector<std::string>& matrix_ids() {
  static const std::vector<std::string> ids = {
      "A01", "A02", "A03", "A04", "A06", "A07", "A08", "A10", "A11", "A12", "A14", "A15", "A16", "A17",
      "A19", "A20", "A21", "A22", "A23", "A24", "A25", "A26", "A27", "A28", "A29", "A30", "A31", "A32",
      "A33", "A35", "A37", "A38", "A39", "A40", "A41", "A43", "A44", "A45", "A46", "A48", "A49", "A50",
      "A51", "A53", "A54", "A56", "A57", "A58", "A59", "A60", "A61", "A62", "A63", "A64", "A65", "A66",
      "B01", "B02", "B03", "B05", "B06", "B07", "B08", "B09", "C01", "C02", "C04", "C05", "C06", "C08",
      "C10", "C11", "C12", "C14", "D01", "D02", "E01", "F01", "F02", "F03", "G01"};
  return ids;
}

struct ConformanceResult {
  ConformanceRow run;  // the sizes that were run
  ProofReport report;
  bool ok() const { return report.ok(); }
  std::string text() const {
    return "ran T " + std::to_string(run.tokens) + " H " + std::to_string(run.hidden) + " I " +
           std::to_string(run.intermediate) + " E " + std::to_string(run.experts) + " k " + std::to_string(run.top_k) +
           "\n" + report.text();
  }
};

namespace detail {

inline std::int64_t multiplications(const ConformanceRow& r) {
  return 3 * r.tokens * r.top_k * r.hidden * r.intermediate;
}

// A smaller I in steps that keep whole blocks, then fewer tokens.
inline ConformanceRow within_budget(ConformanceRow row, const ConformanceBudget& budget) {
  ConformanceRow token = row;
  token.tokens = 1;
  while (multiplications(token) > budget.check && token.intermediate > 128)
    token.intermediate = (token.intermediate / 2 + 127) / 128 * 128;
  row.intermediate = token.intermediate;
  while (multiplications(row) > budget.run && row.tokens > 1) row.tokens = std::max<std::int64_t>(row.tokens / 2, 1);
  return row;
}

}  // namespace detail

inline Problem problem_of(const ConformanceRow& row) {
  Problem p;
  p.recipe = row.recipe;
  p.layer.hidden = row.hidden;
  p.layer.intermediate = row.intermediate;
  p.layer.activation = row.activation;
  p.layer.has_bias = row.bias;
  p.layer.routing.experts = row.experts;
  p.layer.routing.top_k = row.top_k;
  p.max_tokens = row.tokens;
  return p;
}

// Three experts' matrices in turn; where a format has tensor scales each expert scales them by a factor of its own.
inline ExpertWeights many_experts(const ConformanceRow& row, std::uint64_t seed) {
  constexpr std::int32_t kDistinct = 3;
  LayerOptions o;
  o.layer = problem_of(row).layer;
  o.layer.routing.experts = std::min(row.experts, kDistinct);
  o.layer.routing.top_k = 1;
  o.seed = seed;
  const ExpertWeights few = quantized_weights(o, row.recipe);
  ExpertWeights w;
  const auto take = [&](const auto& from, auto& to, std::int32_t e) {
    if (!from.empty()) to.push_back(from[static_cast<std::size_t>(e % kDistinct) % from.size()]);
  };
  for (std::int32_t e = 0; e < row.experts; ++e) {
    take(few.gate, w.gate, e);
    take(few.up, w.up, e);
    take(few.down, w.down, e);
    take(few.gate_bias, w.gate_bias, e);
    take(few.up_bias, w.up_bias, e);
    take(few.down_bias, w.down_bias, e);
    if (row.recipe == Recipe::bf16 || w.up.back().tensor_scale == 1.0f) continue;
    for (auto* list : {&w.gate, &w.up, &w.down}) {
      if (!list->empty()) list->back().tensor_scale *= 1.0f + 0.01f * static_cast<float>(e % 20);
    }
  }
  w.input_scales = random_input_scales(row.recipe, row.experts, is_gated(row.activation.kind));
  w.keep_alive = few.keep_alive;
  return w;
}

inline ConformanceResult run_conformance(const Runner& runner, const ConformanceRow& row,
                                         const ConformanceBudget& budget, std::uint64_t seed = 42) {
  ConformanceResult result{detail::within_budget(row, budget), {}};
  const Problem problem = problem_of(result.run);
  const DType type = row.recipe == Recipe::f32 ? DType::f32 : DType::bf16;
  const Batch batch = random_batch(problem.layer, result.run.tokens, type, row.routes, seed);
  const std::int64_t all = detail::multiplications(result.run);
  const std::int64_t step = std::max<std::int64_t>((all + budget.check - 1) / budget.check, 1);
  result.report = staged_proof(runner, problem, many_experts(result.run, seed), batch, step);
  return result;
}

// E01: sizes, routings and recipes drawn at random; case i of a fixed list.
inline ConformanceRow fuzz_row(int i) {
  Random random(515u + static_cast<std::uint64_t>(i));
  const auto pick = [&](const std::vector<std::int64_t>& from) {
    return from[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(from.size())))];
  };
  ConformanceRow row;
  row.recipe = all_recipes()[static_cast<std::size_t>(i) % all_recipes().size()];
  row.tokens = pick({1, 2, 3, 7, 17, 64, 127, 129, 256, 1024, 2048, 4095, 4096, 4097});
  row.hidden = pick({256, 768, 1024, 2048, 3072});
  row.intermediate = pick({256, 384, 768, 1536});
  row.experts = static_cast<std::int32_t>(pick({8, 40, 128, 256, 512}));
  while (row.hidden * row.experts > (1 << 18)) row.experts /= 2;
  row.top_k = static_cast<std::int32_t>(pick({1, 2, 4, 6, 8}));
  row.routes = static_cast<RoutePattern>(random.below(4));
  return row;
}

// I per rank that ends inside blocks and segments; H = 2880; numbers of experts that are no power of two.
inline std::vector<ConformanceRow> size_rows(Recipe recipe) {
  const auto row = [&](std::int64_t hidden, std::int64_t intermediate, std::int32_t experts) {
    return ConformanceRow{"", recipe, 1, hidden, intermediate, experts, 1, {}};
  };
  return {row(2880, 96, 5), row(2880, 232, 5), row(64, 192, 288), row(64, 232, 160), row(64, 96, 36),
          row(64, 704, 40), row(160, 1440, 5), row(160, 720, 5),  row(160, 736, 5)};
}

}  // namespace sluice::testing
