#include "cpu/runner_cpu.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/error.h"
#include "cpu/gemm.h"
#include "cpu/runner_experts.h"
#include "cpu/runner_plan.h"
#include "cpu/runner_steps.h"
#include "moe/runner_checks.h"

namespace sluice::cpu {
namespace {

class CpuRunner final : public Runner {
 public:
  CpuRunner(ThreadPool& pool, Isa isa) : pool_(pool), kernels_(gemm_kernels(isa)), lines_(line_kernels(isa)) {}

  std::string_view name() const override { return "cpu"; }

  Verdict supports(const Problem& problem) const override {
    if (problem.device.kind != DeviceKind::cpu) return Verdict::no("runs on the CPU only");
    if (problem.graph) return Verdict::no("cannot be captured in a graph");
    if (problem.recipe == Recipe::f32) return Verdict::no("has no recipe f32, which rounds nowhere");
    if (problem.layer.weight_on_input && problem.layer.routing.slots() != 1) {
      return Verdict::no("weights on the input need k = 1");
    }
    return Verdict::yes();
  }

  bool takes_quantized_rows(const Problem& problem) const override {
    return quantizes_to_nvfp4(problem.recipe) && !problem.layer.weight_on_input;
  }

  std::unique_ptr<PreparedExperts> prepare(const Problem& problem, ExpertWeights&& weights) const override {
    const Verdict verdict = supports(problem);
    if (!verdict.ok) fail(ErrorCode::unsupported, "runner cpu: " + verdict.reason);
    check_weights(problem.layer, weights);
    auto experts = std::make_unique<CpuExperts>(problem, weights.count());
    reload(*experts, std::move(weights));
    return experts;
  }

  void reload(PreparedExperts& prepared, ExpertWeights&& weights) const override {
    const ExpertWeights taken = std::move(weights);  // gives up the mapping at the end
    const_cast<CpuExperts&>(own(prepared)).fill(taken, lines_, pool_);
  }

  std::size_t workspace_bytes(const Problem& problem, std::int64_t tokens) const override {
    const LayerSpec& layer = problem.layer;
    return plan_bytes(sizes(layer, problem.recipe, tokens, layer.routing.slots(), layer.routing.total_experts()));
  }

  void run(const PreparedExperts& prepared, const RunArgs& args) const override {
    const CpuExperts& experts = own(prepared);
    check_run_args(experts.layer, experts.recipe, experts.experts, args, InputKinds::plain_or_quantized);
    if (args.quantized.codes) check_quantized(experts, args);
    const std::int64_t tokens = args.tokens();
    if (tokens == 0) return;
    const Workspace::Scope scope(*args.workspace);
    const std::int64_t valid =
        args.valid_tokens != nullptr ? std::clamp<std::int64_t>(*args.valid_tokens, 0, tokens) : tokens;
    const RunPlan plan = make_plan(sizes(experts.layer, experts.recipe, valid, args.top_k, experts.experts), args);
    RunSteps steps{experts, args, plan, kernels_, pool_, valid};
    steps.quantize_hidden();
    steps.gemm1();
    steps.quantize_activated();
    steps.gemm2();
    args.sum ? steps.combine() : steps.zero_skipped_routes();
    steps.zero_padding();
    if (args.stages != nullptr) steps.record_stages();
  }

 private:
  RunSizes sizes(const LayerSpec& layer, Recipe recipe, std::int64_t tokens, std::int32_t top_k,
                 std::int64_t experts) const {
    // How many scales a row has doesn't depend on what they are.
    const InputRounding rounding = input_rounding(recipe, 0.0f);
    const std::int64_t pair = is_gated(layer.activation.kind) ? kPanelRows : kPairRows;
    RunSizes s{tokens, top_k, layer.width(), layer.intermediate, experts, pool_.size(), kernels_.bf16_x};
    s.quantized = rounding.quantized;
    s.scales1 = rounding.scales_of_row(layer.width());
    s.scales2 = rounding.scales_of_row(layer.intermediate);
    s.activated_columns = ceil_div(layer.intermediate, pair) * pair;
    return s;
  }

  // Factors of sums are part of the packed weights, so the scale cannot be another one.
  static void check_quantized(const CpuExperts& experts, const RunArgs& args) {
    if (experts.input1.rounding != Rounding::nvfp4 || args.quantized.encode_scale != experts.input1.scale) {
      fail(ErrorCode::usage, "runner cpu: the input is quantised already",
           "plain rows, or NVFP4 rows that were quantised with the layer's own scale");
    }
    if (args.stages != nullptr) {
      fail(ErrorCode::usage, "runner cpu: stages of an input that is quantised already", "plain rows");
    }
  }

  static const CpuExperts& own(const PreparedExperts& prepared) {
    const auto* experts = dynamic_cast<const CpuExperts*>(&prepared);
    if (experts == nullptr) fail(ErrorCode::usage, "runner cpu was given the experts of another runner");
    return *experts;
  }

  ThreadPool& pool_;
  const GemmKernels& kernels_;
  const LineKernels& lines_;
};

}  // namespace

std::unique_ptr<Runner> make_cpu_runner(ThreadPool& pool, Isa isa) { return std::make_unique<CpuRunner>(pool, isa); }

}  // namespace sluice::cpu
