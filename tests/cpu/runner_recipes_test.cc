// Every quantised recipe on the CPU runner, stage by stage against the reference runner: inputs bit for bit, GEMM1 bit
// for bit where the unit adds as the reference does and else within the bound of the sums, and every later stage
// computed again from the stage before it as the runner itself recorded it.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "cpu/runner_harness.h"
#include "moe/input_scales.h"
#include "moe/quantized_layer.h"
#include "moe/reference_runner.h"
#include "moe/reference_stages.h"
#include "moe/stages.h"
#include "numerics/tolerance.h"

namespace sluice::cpu {
namespace {

using sluice::testing::Batch;
using sluice::testing::FormatOptions;
using sluice::testing::LayerOptions;
using sluice::testing::OutputKind;
using sluice::testing::quantized_weights;
using sluice::testing::random_batch;
using sluice::testing::RoutePattern;
using sluice::testing::run_batch;
using testing::recipe_problem;
using testing::Row;
using testing::StageRows;

double sum_abs_products(const Row& a, const Row& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::fabs(static_cast<double>(a[i]) * b[i]);
  return sum;
}

double dot(const Row& a, const Row& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

Row decoded_row(const QuantTensor& w, std::int64_t n) {
  Row row(static_cast<std::size_t>(w.codes.cols));
  decode_row(w, n, row.data());
  return row;
}

class RecipeProof {
 public:
  RecipeProof(Isa isa, ThreadPool& pool, const Problem& problem, const ExpertWeights& weights, const Batch& batch)
      : isa_(isa), problem_(problem), weights_(weights), batch_(batch) {
    const auto runner = make_cpu_runner(pool, isa);
    const auto reference = make_reference_runner(&pool);
    output_ = run(*runner, stages_);
    run(*reference, reference_);
  }

  void check() {
    for (const std::string_view suffix : {std::string_view(), stage::kSumScales}) {
      const std::string name = std::string(stage::kGemm1Input) + std::string(suffix);
      ASSERT_EQ(stages_.of(name), reference_.of(name)) << name;
    }
    ASSERT_FALSE(stages_.of(stage::kUp).empty());
    if (is_gated(problem_.layer.activation.kind)) check_gemm1(stage::kGate, weights_.gate);
    check_gemm1(stage::kUp, weights_.up);
    check_intermediate();
    check_slot_rows();
    check_sum();
  }

 private:
  Row run(const Runner& runner, StageRows& stages) const {
    const auto prepared = runner.prepare(problem_, ExpertWeights(weights_));
    return run_batch(runner, *prepared, problem_, batch_, {OutputKind::sum_f32, {0, -1}, -1, &stages});
  }

  // vdpbf16ps has its own order of additions; everything else adds as the reference does.
  bool exact() const { return isa_ != Isa::avx512_bf16; }
  std::int64_t expert(std::int64_t route) const { return raw(batch_.ids[route]); }

  // Of both sides together: their sums, and the few roundings of scales and bias.
  static double bound(const Row& x, const Row& w, double value) {
    const tolerance::DotOrder order{static_cast<std::int64_t>(x.size()), kScaledK};
    return 2.0 * tolerance::dot_bound(order, sum_abs_products(x, w)) + 8.0 * unit() * std::fabs(value);
  }
  static double unit() { return tolerance::unit_roundoff(DType::f32); }

  void check_gemm1(std::string_view name, const std::vector<QuantTensor>& matrices) {
    ASSERT_EQ(stages_.of(name).size(), reference_.of(name).size()) << name;
    if (exact()) {
      ASSERT_EQ(stages_.of(name), reference_.of(name)) << name;
      return;
    }
    const bool rounded = problem_.recipe == Recipe::nvfp4_w4a4_cutlass;
    for (const auto& [route, row] : stages_.of(name)) {
      const Row& x = stages_.of(stage::kGemm1Input).at(route);
      for (std::size_t n = 0; n < row.size(); ++n) {
        const double want = reference_.of(name).at(route)[n];
        const double neighbour = rounded ? 2.0 * tolerance::unit_roundoff(DType::bf16) * (std::fabs(want) + 3.0) : 0.0;
        const double limit = bound(x, decoded_row(matrices[expert(route)], n), want) + neighbour;
        ASSERT_NEAR(row[n], want, limit) << name << " route " << route << " column " << n;
      }
    }
  }

  // The activation of the recorded accumulators in the format of the intermediate. The kernels' exponential differs in
  // the last bits, so a code may be the neighbour at a tie: at most 0.5 % of them, one step away.
  void check_intermediate() {
    const reference::RoundingPoints points = reference::rounding_points(problem_.recipe);
    const float scale = layer_input_scales(problem_.recipe, weights_.input_scales).gemm2;
    const std::int64_t cols = problem_.layer.intermediate;
    std::int64_t total = 0, different = 0;
    for (const auto& [route, row] : stages_.of(stage::kIntermediate)) {
      const Row& up = stages_.of(stage::kUp).at(route);
      const bool gated = is_gated(problem_.layer.activation.kind);
      const float* gate = gated ? stages_.of(stage::kGate).at(route).data() : nullptr;
      const Buffer scratch = host_buffer(reference::operand_bytes(points.intermediate, 1, cols) + 4096);
      Workspace workspace(scratch.data(), scratch.bytes());
      const reference::OperandRows want = reference::take_rows(points.intermediate, 1, cols, workspace);
      reference::activate_rows(problem_.layer.activation, points, gate, up.data(), 1, scale, want);
      Row value(static_cast<std::size_t>(cols));
      reference::dequantize_operands(want, 0, value.data());
      float most = 0.0f;
      for (const float v : value) most = std::max(most, std::fabs(v));
      for (std::size_t n = 0; n < row.size(); ++n) {
        ++total;
        if (std::fabs(row[n] - value[n]) <= 1e-6f * std::fabs(value[n])) continue;
        ++different;
        // Steps are at most half of the value, or below the smallest codes.
        ASSERT_LE(std::fabs(row[n] - value[n]), 0.51f * std::fabs(value[n]) + 0.17f * most) << route << " " << n;
      }
    }
    ASSERT_GT(total, 0);
    ASSERT_LE(static_cast<double>(different), std::max(2.0, 0.005 * static_cast<double>(total))) << "of " << total;
  }

  void check_slot_rows() {
    ASSERT_EQ(stages_.of(stage::kSlotRows).size(), stages_.of(stage::kUp).size());
    for (const auto& [route, row] : stages_.of(stage::kSlotRows)) {
      const Row& x = stages_.of(stage::kIntermediate).at(route);
      const std::int64_t e = expert(route);
      for (std::size_t h = 0; h < row.size(); ++h) {
        const Row w = decoded_row(weights_.down[e], h);
        const double bias = problem_.layer.has_bias ? decode_bias(weights_.down_bias[e], h) : 0.0;
        const double product = dot(x, w), value = product + bias;
        const double limit = bound(x, w, std::fabs(product) + std::fabs(bias));
        ASSERT_GE(row[h], round_to_bf16(static_cast<float>(value - limit))) << "route " << route << " column " << h;
        ASSERT_LE(row[h], round_to_bf16(static_cast<float>(value + limit))) << "route " << route << " column " << h;
      }
    }
  }

  void check_sum() {
    const std::int64_t width = problem_.layer.width();
    for (std::int64_t t = 0; t < batch_.tokens; ++t) {
      std::vector<const float*> rows;
      for (std::int32_t s = 0; s < batch_.top_k; ++s) {
        rows.push_back(stages_.of(stage::kSlotRows).at(t * batch_.top_k + s).data());
      }
      Row sum(static_cast<std::size_t>(width));
      const float one = 1.0f;
      const float* weights = problem_.layer.weight_on_input ? &one : batch_.weights.data() + t * batch_.top_k;
      reference::weighted_sum(rows.data(), weights, batch_.top_k, width, sum.data());
      ASSERT_EQ(Row(output_.begin() + t * width, output_.begin() + (t + 1) * width), sum) << "token " << t;
    }
  }

  Isa isa_;
  const Problem& problem_;
  const ExpertWeights& weights_;
  const Batch& batch_;
  Row output_;
  StageRows stages_;
  StageRows reference_;
};

class RunnerRecipes : public ::testing::TestWithParam<std::tuple<Isa, Recipe>> {
 protected:
  Isa isa() const { return std::get<0>(GetParam()); }
  Recipe recipe() const { return std::get<1>(GetParam()); }
  void prove(const Problem& problem, std::int64_t tokens, const FormatOptions& format = {}) {
    SCOPED_TRACE("H " + std::to_string(problem.layer.hidden) + " I " + std::to_string(problem.layer.intermediate) +
                 " " + std::string(activation_name(problem.layer.activation.kind)));
    const ExpertWeights weights = quantized_weights({problem.layer}, recipe(), format);
    const Batch batch = random_batch(problem.layer, tokens, DType::bf16, RoutePattern::zipf, 3);
    RecipeProof(isa(), pool_, problem, weights, batch).check();
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
  for (const std::int64_t tokens : {1, 2, 3, 4, 5, 13, 100}) prove(problem, tokens);
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
