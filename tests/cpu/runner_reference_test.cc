// The CPU runner stage by stage. GEMM1 is compared with the reference runner; every later stage is computed again from
// the stage before it as the runner itself recorded it, so that no error hides behind an earlier one.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu/gemm_activation_oracle.h"
#include "cpu/runner_harness.h"
#include "moe/reference_runner.h"
#include "moe/reference_stages.h"
#include "moe/stages.h"
#include "numerics/tolerance.h"

namespace sluice::cpu {
namespace {

using sluice::testing::Batch;
using sluice::testing::LayerOptions;
using sluice::testing::OutputKind;
using sluice::testing::random_batch;
using sluice::testing::random_weights;
using sluice::testing::RoutePattern;
using sluice::testing::run_batch;
using sluice::testing::RunOptions;
using sluice::testing::WeightLayout;
using testing::make_problem;
using testing::Row;
using testing::StageRows;

double sum_abs_products(const Row& a, const Row& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::fabs(static_cast<double>(a[i]) * b[i]);
  return sum;
}

class StagedProof {
 public:
  StagedProof(Isa isa, ThreadPool& pool, const Problem& problem, const ExpertWeights& weights, const Batch& batch)
      : isa_(isa), problem_(problem), weights_(weights), batch_(batch) {
    const auto runner = make_cpu_runner(pool, isa);
    const auto reference = make_reference_runner(&pool);
    output_ = run(*runner, stages_);
    run(*reference, reference_);
  }

  void check() {
    compare_bits(stage::kGemm1Input);
    check_gemm1(stage::kGate, weights_.gate);
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

  void compare_bits(std::string_view name) {
    ASSERT_EQ(stages_.of(name), reference_.of(name)) << name;
    ASSERT_FALSE(stages_.of(name).empty()) << name;
  }

  void check_gemm1(std::string_view name, const std::vector<QuantTensor>& matrices) {
    ASSERT_EQ(stages_.of(name).size(), reference_.of(name).size()) << name;
    if (exact()) {
      ASSERT_EQ(stages_.of(name), reference_.of(name)) << name;
      return;
    }
    for (const auto& [route, row] : stages_.of(name)) {
      const Row& x = stages_.of(stage::kGemm1Input).at(route);
      for (std::size_t n = 0; n < row.size(); ++n) {
        const Row w = testing::weight_row(matrices[expert(route)], n);
        const double bound = 2.0 * dot_bound(x, w) + 2.0 * unit() * std::fabs(row[n]);  // both sides err; bias
        ASSERT_NEAR(row[n], reference_.of(name).at(route)[n], bound) << name << " route " << route << " column " << n;
      }
    }
  }

  static double unit() { return tolerance::unit_roundoff(DType::f32); }
  static double dot_bound(const Row& x, const Row& w) {
    const tolerance::DotOrder order{static_cast<std::int64_t>(x.size()), kSegmentK};
    return tolerance::dot_bound(order, sum_abs_products(x, w));
  }

  // Equal to the float64 activation of the recorded accumulators, rounded once, unless that lies next to a tie.
  void check_intermediate() {
    const ActivationSpec& spec = problem_.layer.activation;
    ASSERT_EQ(stages_.of(stage::kIntermediate).size(), stages_.of(stage::kUp).size());
    for (const auto& [route, row] : stages_.of(stage::kIntermediate)) {
      for (std::size_t n = 0; n < row.size(); ++n) {
        const double up = stages_.of(stage::kUp).at(route)[n];
        const double gate = is_gated(spec.kind) ? stages_.of(stage::kGate).at(route)[n] : 0.0;
        const double value = testing::expected(spec, gate, up).value;
        check_rounded(row[n], value, testing::bound(spec, gate, up));
      }
    }
  }

  static void check_rounded(float got, double value, double bound) {
    const float low = round_to_bf16(static_cast<float>(value - bound));
    const float high = round_to_bf16(static_cast<float>(value + bound));
    ASSERT_GE(got, low);
    ASSERT_LE(got, high);
  }

  void check_slot_rows() {
    ASSERT_EQ(stages_.of(stage::kSlotRows).size(), stages_.of(stage::kUp).size());
    for (const auto& [route, row] : stages_.of(stage::kSlotRows)) {
      const Row& x = stages_.of(stage::kIntermediate).at(route);
      const std::int64_t e = expert(route);
      for (std::size_t h = 0; h < row.size(); ++h) {
        const Row w = testing::weight_row(weights_.down[e], h);
        float value = reference::segmented_dot(x.data(), w.data(), w.size(), kSegmentK);
        if (problem_.layer.has_bias) value += decode_bias(weights_.down_bias[e], h);
        if (exact()) {
          ASSERT_EQ(row[h], round_to_bf16(value)) << "route " << route << " column " << h;
        } else {
          check_rounded(row[h], value, 2.0 * dot_bound(x, w) + 2.0 * unit() * std::fabs(value));
        }
      }
    }
  }

  void check_sum() {
    const std::int64_t width = problem_.layer.width();
    for (std::int64_t t = 0; t < batch_.tokens; ++t) {
      std::vector<const float*> rows;
      for (std::int32_t s = 0; s < batch_.top_k; ++s) {
        const auto& recorded = stages_.of(stage::kSlotRows);
        const auto found = recorded.find(t * batch_.top_k + s);
        rows.push_back(found == recorded.end() ? nullptr : found->second.data());
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

class RunnerStages : public ::testing::TestWithParam<Isa> {
 protected:
  void prove(const LayerOptions& options, const Problem& problem, const Batch& batch) {
    const ExpertWeights weights = random_weights(options);
    StagedProof(GetParam(), pool_, problem, weights, batch).check();
  }

  ThreadPool pool_{2};
};

// Every activation with and without biases, each with another routing, memory layout and weight type.
TEST_P(RunnerStages, ActivationsBiasesRoutings) {
  constexpr RoutePattern kPatterns[] = {RoutePattern::uniform, RoutePattern::zipf, RoutePattern::hot_one,
                                        RoutePattern::all_to_one};
  constexpr WeightLayout kLayouts[] = {WeightLayout::dense, WeightLayout::padded, WeightLayout::transposed,
                                       WeightLayout::interleaved, WeightLayout::gpt_oss};
  constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::f32};
  int i = 0;
  for (int kind = 0; kind <= static_cast<int>(ActivationKind::relu2); ++kind) {
    for (const bool bias : {false, true}) {
      Problem problem = make_problem(271, 75, 5, 3);
      problem.layer.activation.kind = static_cast<ActivationKind>(kind);
      problem.layer.has_bias = bias;
      SCOPED_TRACE(std::string(activation_name(problem.layer.activation.kind)) + (bias ? " with bias" : ""));
      const LayerOptions options{problem.layer, kTypes[i % 3], kLayouts[i % 5], 7u + i};
      prove(options, problem, random_batch(problem.layer, 26, DType::bf16, kPatterns[i % 4], 3 + i));
      ++i;
    }
  }
}

// Rows and columns that end within panels, pairs, k pairs and segments.
TEST_P(RunnerStages, Sizes) {
  constexpr std::int64_t kSizes[][2] = {{1, 1}, {2, 33}, {17, 16}, {31, 17}, {32, 257}, {513, 3}, {256, 512}};
  for (const auto& [hidden, intermediate] : kSizes) {
    for (const ActivationKind kind : {ActivationKind::swiglu, ActivationKind::relu2}) {
      Problem problem = make_problem(hidden, intermediate, 3, 2);
      problem.layer.activation.kind = kind;
      SCOPED_TRACE("H " + std::to_string(hidden) + " I " + std::to_string(intermediate));
      prove({problem.layer}, problem, random_batch(problem.layer, 9, DType::bf16, RoutePattern::uniform, 5));
    }
  }
}

TEST_P(RunnerStages, SeveralChunksOfOneExpert) {
  const Problem problem = make_problem(64, 48, 4, 2);
  prove({problem.layer}, problem, random_batch(problem.layer, 130, DType::bf16, RoutePattern::all_to_one, 6));
}

TEST_P(RunnerStages, WeightOnInput) {
  Problem problem = make_problem(100, 70, 5, 1);
  problem.layer.weight_on_input = true;
  prove({problem.layer}, problem, random_batch(problem.layer, 20, DType::bf16, RoutePattern::uniform, 8));
}

TEST_P(RunnerStages, ExpertsNarrowerThanTheModel) {
  Problem problem = make_problem(100, 70, 5, 2);
  problem.layer.expert_width = 48;
  prove({problem.layer}, problem, random_batch(problem.layer, 20, DType::bf16, RoutePattern::uniform, 8));
}

INSTANTIATE_TEST_SUITE_P(Isa, RunnerStages, ::testing::ValuesIn(testing::available_isas()),
                         [](const auto& isa) { return testing::isa_label(isa.param); });

}  // namespace
}  // namespace sluice::cpu
