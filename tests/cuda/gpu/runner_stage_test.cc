// The Hopper runner stage by stage (architecture section 5), and the rows of the conformance matrix in its recipes.
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "gpu/harness.h"
#include "gpu/layer_case.h"
#include "moe/conformance.h"
#include "moe/reference_runner.h"
#include "moe/stage_dump.h"

namespace sluice::gpu_tests {
namespace {

using sluice::testing::Batch;
using sluice::testing::ConformanceRow;
using sluice::testing::RoutePattern;
using sluice::testing::StageDump;

// Codes of the intermediate may differ where the value lies next to a tie. Tensor cores keep about 14 significant bits
// of a sum of e4m3 products, so that in fp8 the values are within a few 2^-13, against steps of 2^-3 to 2^-4: over many
// codes the share stays below kTieShare, in one small case it may be kTieShareOfCase.
constexpr double kTieShare = 0.01;
constexpr double kTieShareOfCase = 0.03;
constexpr double kOneRounding = 3e-3;  // relative L2 of values rounded once to bf16, twice the typical one

struct StageCounts {
  std::int64_t codes = 0, different = 0, far = 0;
  std::map<Recipe, std::pair<std::int64_t, std::int64_t>> of_recipe;  // different, codes
};

std::string name_of(std::string_view stage, std::string_view suffix = "") {
  return std::string(stage) + std::string(suffix);
}

// Whether two values of a row differ by more than a step of their format, or than the error of the sums they come from:
// 2^-11 of the largest of the row in fp8, as above, and far less in bf16.
bool far(float a, float b, float largest, bool fp8) {
  const float step = fp8 ? 0.13f : 0.008f, sums = fp8 ? 0x1p-11f : 0x1p-16f;
  return !(std::fabs(a - b) <= step * std::fabs(b) + sums * largest);
}

void compare_codes(const StageDump& got, const StageDump& want, StageCounts& counts) {
  const std::string values = name_of(stage::kIntermediate), codes = name_of(stage::kIntermediate, stage::kCodes);
  const bool fp8 = want.has(codes);
  for (const auto& [route, bytes] : want.rows(values)) {
    const auto a = got.row<float>(values, route), b = want.row<float>(values, route);
    const auto code_a = got.row<std::uint8_t>(codes, route), code_b = want.row<std::uint8_t>(codes, route);
    float largest = 0.0f;
    for (const float v : b) largest = std::max(largest, std::fabs(v));
    for (std::size_t i = 0; i < b.size(); ++i) {
      ++counts.codes;
      const bool same = i < a.size() && (fp8 ? code_a.at(i) == code_b.at(i) : a[i] == b[i]);
      counts.different += same ? 0 : 1;
      counts.far += i >= a.size() || far(a[i], b[i], largest, fp8) ? 1 : 0;
    }
  }
}

// Slot rows in float64 from the runner's own intermediate.
double slot_row_error(const StageDump& got, const ExpertWeights& weights, const Batch& batch, Recipe recipe) {
  std::vector<float> mine, exact;
  for (std::int64_t r = 0; r < batch.tokens * batch.top_k; ++r) {
    const std::int32_t e = raw(batch.ids[r]);
    if (e < 0 || e >= weights.count()) continue;
    const auto inner = got.row<float>(name_of(stage::kIntermediate), r);
    const auto row = got.row<float>(name_of(stage::kSlotRows), r);
    const QuantTensor& down = weights.down[e];
    std::vector<float> w(static_cast<std::size_t>(down.codes.cols));
    for (std::int64_t h = 0; h < down.codes.rows; ++h) {
      decode_row(down, h, w.data());
      double sum = weights.down_bias.empty() ? 0.0 : decode_bias(weights.down_bias[e], h);
      for (std::size_t c = 0; c < w.size(); ++c) {
        sum += static_cast<double>(inner.at(c)) * (recipe == Recipe::bf16 ? round_to_bf16(w[c]) : w[c]);
      }
      exact.push_back(static_cast<float>(sum));
      mine.push_back(row.at(static_cast<std::size_t>(h)));
    }
  }
  return relative_l2(mine, exact);
}

// `problem` is on the CPU, where the reference runs; the facade takes it to the GPU.
void prove(Check& check, const Problem& problem, const ExpertWeights& weights, const Batch& batch,
           const std::string& what, StageCounts& all, int decode) {
  const auto reference = make_reference_runner(nullptr);
  cuda::HopperOptions forced;
  forced.decode = decode;
  const Facade facade(forced);
  StageDump want, got;
  sluice::testing::RunOptions options;
  options.stages = &want;
  const auto expected = sluice::testing::run_batch(*reference, *reference->prepare(problem, ExpertWeights(weights)),
                                                   problem, batch, options);
  options.stages = &got;
  const auto prepared = facade.prepare(problem, ExpertWeights(weights));
  const auto output = sluice::testing::run_batch(facade, *prepared, problem, batch, options);
  for (const std::string_view suffix : {std::string_view(""), stage::kCodes, stage::kSumScales}) {
    const std::string name = name_of(stage::kGemm1Input, suffix);
    check.expect(got.rows(name) == want.rows(name), name + " is not that of the reference: " + what);
  }
  StageCounts counts;
  compare_codes(got, want, counts);
  check.expect(counts.codes > 0 && counts.far == 0, std::to_string(counts.far) + " of " + std::to_string(counts.codes) +
                                                        " intermediates are far off: " + what);
  check.at_most(static_cast<double>(counts.different) / static_cast<double>(counts.codes), kTieShareOfCase,
                "share of codes that differ: " + what);
  check.at_most(slot_row_error(got, weights, batch, problem.recipe), kOneRounding, "slot rows: " + what);
  check.at_most(relative_l2(output, expected), small_layer_bound(problem.recipe), "output: " + what);
  all.codes += counts.codes;
  all.different += counts.different;
  all.of_recipe[problem.recipe].first += counts.different;
  all.of_recipe[problem.recipe].second += counts.codes;
}

void conclude(Check& check, const StageCounts& all, const std::string& before) {
  const double share = static_cast<double>(all.different) / static_cast<double>(all.codes);
  check.expect(share <= kTieShare, "share of codes that differ over all cases: " + std::to_string(share));
  std::string text =
      before + std::to_string(all.different) + " of " + std::to_string(all.codes) + " codes next to a tie";
  for (const auto& [recipe, n] : all.of_recipe) {
    text += ", " + std::string(recipe_info(recipe).name) + " " + std::to_string(n.first) + " of " +
            std::to_string(n.second);
  }
  check.note(text);
}

void stages(Check& check) {
  StageCounts all;
  for (const Recipe recipe : kRecipes) {
    for (const std::int64_t hidden : {256, 784, 2048}) {
      LayerCase c;
      c.recipe = recipe;
      c.hidden = hidden;
      c.intermediate = hidden == 784 ? 400 : 768;
      c.experts = 4;
      c.bias = true;
      const Batch batch =
          sluice::testing::random_batch(c.problem().layer, 6, DType::bf16, RoutePattern::uniform, c.seed);
      Problem problem = c.problem();
      problem.device = {};
      for (const int decode : {-1, 1}) {
        prove(check, problem, c.weights(), batch, (decode > 0 ? "few tokens: " : "") + c.text(), all, decode);
      }
    }
  }
  conclude(check, all, "");
}

void conformance(Check& check) {
  constexpr std::int64_t kBudget = 12'000'000;
  StageCounts all;
  int rows = 0;
  for (const ConformanceRow& row : sluice::testing::conformance_rows()) {
    if (row.recipe != Recipe::bf16 && row.recipe != Recipe::fp8_block && row.recipe != Recipe::fp8_tensor) continue;
    const ConformanceRow small = sluice::testing::detail::within_budget(row, {kBudget, kBudget});
    const Problem problem = sluice::testing::problem_of(small);
    const Batch batch = sluice::testing::random_batch(problem.layer, small.tokens, DType::bf16, small.routes, 42);
    for (const int decode : {-1, 1}) {
      const std::string what = (decode > 0 ? "few tokens: row " : "row ") + row.id;
      prove(check, problem, sluice::testing::many_experts(small, 42), batch, what, all, decode);
    }
    ++rows;
  }
  conclude(check, all, std::to_string(rows) + " rows, ");
}

}  // namespace

std::vector<Test> runner_stage_tests() {
  return {{"runner: stage by stage", stages}, {"runner: conformance matrix", conformance}};
}

}  // namespace sluice::gpu_tests
