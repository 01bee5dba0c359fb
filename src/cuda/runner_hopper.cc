#include "cuda/runner_hopper.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "cuda/device.h"
#include "cuda/run_hopper.h"
#include "cuda/status.h"
#include "moe/runner_checks.h"

namespace sluice::cuda {
namespace {

constexpr std::int32_t kMostTopK = 32;
constexpr std::int64_t kSizeUnit = 16;  // H and I are multiples of it
constexpr int kProcessorsOfH200 = 132;  // assumed where there is no GPU to ask

int processors_of(int device) {
  int count = 0;
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess) return count;
  cudaGetLastError();
  return kProcessorsOfH200;
}

std::string size_problem(const LayerSpec& layer) {
  for (const auto& [name, size] : {std::pair{"H", layer.width()}, std::pair{"I", layer.intermediate}}) {
    if (size % kSizeUnit != 0) return std::string(name) + " = " + std::to_string(size) + " is no multiple of 16";
  }
  if (layer.routing.slots() > kMostTopK) return "k is above " + std::to_string(kMostTopK);
  if (layer.routing.total_experts() > kRouteMostExperts)
    return "more than " + std::to_string(kRouteMostExperts) + " experts";
  return "";
}

// Rows whose bits do not depend on T: the K range of a tile is then never shared by blocks, only the rows.
void keep_ranges_whole(sm90::Plan& plan) {
  if (plan.split == 1) return;
  plan.split = 1;
  plan.half_tiles = true;
}

// Whether the kernel for a few tokens takes the place of the others. Its bits are those of no other plan.
bool takes_decode(const sm90::Shape& shape, std::int64_t tokens, std::int32_t top_k, std::int32_t experts_global,
                  int processors, bool row_invariant, const HopperOptions& options) {
  if (row_invariant || options.decode < 0) return false;
  if (options.decode > 0) return sm90::decode_fits(shape, tokens, top_k, processors);
  if (options.token_tile != 0 || options.split != 0) return false;
  return sm90::decode_pays(shape, tokens, top_k, experts_global, processors);
}

sm90::Plan choose(const sm90::Shape& shape, const LayerSpec& layer, std::int64_t tokens, std::int32_t top_k,
                  int processors, bool row_invariant, const HopperOptions& options) {
  sm90::Plan plan =
      sm90::choose_plan(shape, layer.activation.kind, tokens, top_k, layer.routing.total_experts(), processors);
  if (row_invariant || options.split == 1) keep_ranges_whole(plan);
  if (options.token_tile != 0) plan.token_tile = options.token_tile;
  if (options.gather != 0) plan.gather = options.gather > 0;
  plan.gather = plan.gather && plan.token_tile == sm90::kGatheredTile;
  plan.half_tiles = plan.half_tiles && plan.token_tile <= sm90::kMostHalfTileRows;
  if (options.split != 0) plan.split = options.split;
  plan.decode = takes_decode(shape, tokens, top_k, layer.routing.total_experts(), processors, row_invariant, options);
  return plan;
}

sm90::Shape shape_of(const Problem& problem, std::int64_t local_experts) {
  return {sm90_format(problem.recipe), static_cast<std::int32_t>(problem.layer.width()),
          static_cast<std::int32_t>(problem.layer.intermediate), static_cast<std::int32_t>(local_experts)};
}

// The most routes that the kernel for a few tokens takes. A run may have fewer slots a token than the layer.
std::int64_t most_decode_routes(const sm90::Shape& shape, const RoutingSpec& routing, int processors,
                                bool row_invariant, const HopperOptions& options) {
  std::int64_t most = 0;
  for (std::int32_t k = 1; k <= routing.slots(); ++k) {
    for (std::int64_t tokens = 1; tokens * k <= sm90::kDecodeRoutes; ++tokens) {
      if (!takes_decode(shape, tokens, k, routing.total_experts(), processors, row_invariant, options)) continue;
      most = std::max(most, tokens * k);
    }
  }
  return most;
}

class HopperRunner final : public Runner {
 public:
  HopperRunner(ThreadPool* pool, const HopperOptions& options) : pool_(pool), options_(options) {}

  std::string_view name() const override { return "hopper"; }

  Verdict supports(const Problem& problem) const override {
    if (problem.device.kind != DeviceKind::cuda) return Verdict::no("runs on a Hopper GPU only");
    const Recipe r = problem.recipe;
    if (r != Recipe::bf16 && r != Recipe::fp8_block && r != Recipe::fp8_tensor) {
      return Verdict::no("has recipes bf16, fp8-block and fp8-tensor");
    }
    if (const std::string why = size_problem(problem.layer); !why.empty()) return Verdict::no(why);
    if (problem.layer.weight_on_input && problem.layer.routing.slots() != 1) {
      return Verdict::no("weights on the input need k = 1");
    }
    if (device_count(nullptr) > 0) {
      const DeviceInfo info = device_info(problem.device.index);
      if (!info.hopper()) return Verdict::no(info.name + " is no Hopper GPU (compute capability 9.0)");
    }
    return Verdict::yes();
  }

  std::unique_ptr<PreparedExperts> prepare(const Problem& problem, ExpertWeights&& weights) const override {
    const Verdict verdict = supports(problem);
    if (!verdict.ok) fail(ErrorCode::unsupported, "runner hopper: " + verdict.reason);
    check_weights(problem.layer, weights);
    const DeviceScope scope(problem.device.index);
    check(prepare_route(), "preparing the routing kernels");
    check(sm90::prepare_kernels(), "preparing the kernels of Hopper");
    check(sm90::prepare_decode(), "preparing the kernel for a few tokens");
    auto experts = std::make_unique<HopperExperts>(problem, weights.count());
    reload(*experts, std::move(weights));
    experts->decode_states = decode_states(*experts);
    return experts;
  }

  void reload(PreparedExperts& prepared, ExpertWeights&& weights) const override {
    const ExpertWeights taken = std::move(weights);  // gives up the mapping at the end
    const_cast<HopperExperts&>(own(prepared)).fill(taken, pool_);
  }

  std::size_t workspace_bytes(const Problem& problem, std::int64_t tokens) const override {
    RunSizes s;
    s.shape = shape_of(problem, problem.layer.routing.total_experts());
    s.tokens = tokens;
    s.top_k = problem.layer.routing.slots();
    s.processors = processors_of(problem.device.index);
    return workspace_bytes_of(s);
  }

  void run(const PreparedExperts& prepared, const RunArgs& args) const override {
    const HopperExperts& experts = own(prepared);
    check_run_args(experts.layer, experts.recipe, experts.shape.experts, args, InputKinds::plain_or_quantized);
    if (args.tokens() == 0) return;
    const Workspace::Scope workspace(*args.workspace);
    const RunSizes s = sizes(experts, args);
    const RunScratch r = make_scratch(s, [&](std::size_t bytes) { return take(*args.workspace, bytes); });
    const cudaStream_t stream = raw(args.stream);
    if (s.plan.decode) return decode(experts, s, r, args, stream);
    check(launch_route(route_args(experts, s, r, args), stream), "starting the routing kernel");
    if (options_.steps == 1) return;
    check(sm90::launch_experts(expert_args(experts, s, r, args), stream), "starting the kernels of Hopper");
    if (options_.steps == 2 || s.direct) return;
    check(launch_finalize(finalize_args(experts, r, args), stream), "starting the finalise kernel");
    if (args.stages != nullptr) record_stages(experts, s, r, args);
  }

 private:
  // For layers of one size on one GPU, as long as there is one.
  std::shared_ptr<DecodeStates> decode_states(const HopperExperts& experts) const {
    const std::int64_t routes =
        most_decode_routes(experts.shape, experts.layer.routing, experts.processors, experts.row_invariant, options_);
    const LayerInputScales& scales = experts.input_scales;
    const bool dynamic = experts.recipe == Recipe::fp8_tensor && (scales.gemm1 == 0.0f || scales.gemm2 == 0.0f);
    if (routes == 0 || dynamic) return nullptr;
    const auto bytes = static_cast<std::int64_t>(sm90::decode_h_bytes(experts.shape, routes));
    const std::lock_guard lock(states_mutex_);
    std::weak_ptr<DecodeStates>& known = states_[{experts.device, bytes}];
    std::shared_ptr<DecodeStates> states = known.lock();
    if (states == nullptr) {
      states = std::make_shared<DecodeStates>(bytes, experts.processors, experts.device);
      known = states;
    }
    return states;
  }

  // All steps in one launch. With stages, the routing kernel runs too: it gives the rows that they are recorded at.
  void decode(const HopperExperts& experts, const RunSizes& s, const RunScratch& r, const RunArgs& args,
              cudaStream_t stream) const {
    sm90::DecodeArgs a = decode_args(experts, s, r, args);
    a.launches = options_.decode_launches;
    if (options_.steps == 1) {  // there is a first kernel only where scratch is cleared
      if (options_.decode_clears) check(sm90::launch_decode_clear(a, stream), "clearing flags");
      return;
    }
    if (experts.decode_states != nullptr && !options_.decode_clears) {
      const auto bytes = static_cast<std::int64_t>(sm90::decode_h_bytes(s.shape, s.routes()));
      if (const auto state = experts.decode_states->of(args.workspace->data(), bytes)) a.state = *state;
    }
    if (args.stages != nullptr)
      check(launch_route(route_args(experts, s, r, args), stream), "starting the routing kernel");
    check(sm90::launch_decode(a, stream), "starting the kernel for a few tokens");
    if (args.stages != nullptr) record_stages(experts, s, r, args);
  }

  RunSizes sizes(const HopperExperts& experts, const RunArgs& args) const {
    RunSizes s;
    s.shape = experts.shape;
    s.tokens = args.tokens();
    s.top_k = args.top_k;
    s.processors = experts.processors;
    s.direct = writes_directly(experts, args);
    s.static_intermediate = experts.input_scales.gemm2 != 0.0f;
    s.whole_rows = (experts.recipe == Recipe::fp8_tensor && experts.input_scales.gemm1 == 0.0f) || args.quantized.codes;
    s.plan =
        choose(experts.shape, experts.layer, s.tokens, s.top_k, experts.processors, experts.row_invariant, options_);
    s.plan.decode = s.plan.decode && !s.whole_rows && (experts.recipe != Recipe::fp8_tensor || s.static_intermediate);
    s.rows = rows_of(experts, s, args);
    return s;
  }

  // The kernels want 128-byte alignment, a workspace gives 64.
  static void* take(Workspace& workspace, std::size_t bytes) {
    const auto at =
        reinterpret_cast<std::uintptr_t>(workspace.take_bytes(bytes + sm90::kBlockBytes - Workspace::kAlignBytes));
    return reinterpret_cast<void*>((at + sm90::kBlockBytes - 1) / sm90::kBlockBytes * sm90::kBlockBytes);
  }

  static const HopperExperts& own(const PreparedExperts& prepared) {
    const auto* experts = dynamic_cast<const HopperExperts*>(&prepared);
    if (experts == nullptr) fail(ErrorCode::usage, "runner hopper was given the experts of another runner");
    return *experts;
  }

  ThreadPool* pool_;
  HopperOptions options_;
  mutable std::mutex states_mutex_;
  mutable std::map<std::pair<int, std::int64_t>, std::weak_ptr<DecodeStates>> states_;  // by GPU and bytes
};

}  // namespace

std::unique_ptr<Runner> make_hopper_runner(ThreadPool* pool, const HopperOptions& options) {
  return std::make_unique<HopperRunner>(pool, options);
}

std::string hopper_kernel(const Problem& problem, std::int64_t local_experts, std::int64_t tokens) {
  const sm90::Plan plan = choose(shape_of(problem, local_experts), problem.layer, tokens, problem.layer.routing.slots(),
                                 processors_of(problem.device.index), problem.row_invariant, {});
  return std::string(sm90::plan_name(plan)) + (problem.row_invariant ? ", row-invariant" : "");
}

}  // namespace sluice::cuda
