// The Hopper runner behind host pointers, so that the harnesses of tests/moe, written for CPU runners, drive it as they
// are: run() uploads the batch, runs in poisoned and guarded device memory, and downloads the output. The last run's
// guards are checked; a write outside of an array throws.
#pragma once

#include <memory>
#include <string>

#include "core/error.h"
#include "cuda/runner_hopper.h"
#include "gpu/device_array.h"

namespace sluice::gpu_tests {

inline Problem on_gpu(Problem problem) {
  problem.device = {DeviceKind::cuda, 0};
  return problem;
}

class Facade final : public Runner {
 public:
  explicit Facade(const cuda::HopperOptions& options = {}) : runner_(cuda::make_hopper_runner(nullptr, options)) {}

  std::string_view name() const override { return runner_->name(); }
  Verdict supports(const Problem& problem) const override { return runner_->supports(on_gpu(problem)); }
  std::unique_ptr<PreparedExperts> prepare(const Problem& problem, ExpertWeights&& weights) const override {
    auto prepared = std::make_unique<Prepared>();
    prepared->problem = on_gpu(problem);
    prepared->experts = runner_->prepare(prepared->problem, std::move(weights));
    return prepared;
  }
  void reload(PreparedExperts& prepared, ExpertWeights&& weights) const override {
    runner_->reload(*own(prepared).experts, std::move(weights));
  }
  std::size_t workspace_bytes(const Problem&, std::int64_t) const override { return 0; }

  void run(const PreparedExperts& prepared, const RunArgs& host) const override {
    const Prepared& own_prepared = own(prepared);
    const std::int64_t tokens = host.tokens(), routes = tokens * host.top_k;
    RunArgs args = host;
    const auto hidden = bytes_of(host.hidden.data, host.hidden.dtype, tokens, host.hidden.row_stride);
    const auto ids = copy(host.ids, routes);
    const auto weights = copy(host.weights, routes);
    const auto valid = copy(host.valid_tokens, host.valid_tokens == nullptr ? 0 : 1);
    args.hidden.data = hidden.data();
    args.ids = ids.data();
    args.weights = weights.data();
    if (host.valid_tokens != nullptr) args.valid_tokens = valid.data();
    const TensorView& to = host.sum ? host.sum : host.routes;
    const DeviceArray<std::byte> out(dtype_bytes(to.dtype, to.rows * to.row_stride));
    (host.sum ? args.sum : args.routes).data = out.data();
    const DeviceArray<std::byte> memory(
        static_cast<std::int64_t>(runner_->workspace_bytes(own_prepared.problem, tokens)));
    Workspace workspace(memory.data(), memory.bytes());
    args.workspace = &workspace;
    args.stream = {};
    runner_->run(*own_prepared.experts, args);
    cuda::check(cudaDeviceSynchronize(), "a run");
    cuda::check(cudaMemcpy(to.data, out.data(), out.bytes(), cudaMemcpyDeviceToHost), "the output");
    if (!out.intact() || !memory.intact()) fail(ErrorCode::check_failed, "the runner wrote outside of its memory");
  }

 private:
  class Prepared final : public PreparedExperts {
   public:
    Problem problem;
    std::unique_ptr<PreparedExperts> experts;
    std::int64_t resident_bytes() const override { return experts->resident_bytes(); }
  };

  static const Prepared& own(const PreparedExperts& prepared) { return dynamic_cast<const Prepared&>(prepared); }
  static Prepared& own(PreparedExperts& prepared) { return dynamic_cast<Prepared&>(prepared); }

  template <class T>
  static DeviceArray<T> copy(const T* data, std::int64_t count) {
    DeviceArray<T> array(count);
    if (count > 0) cuda::copy_to_device(array.data(), data, array.bytes(), "upload");
    return array;
  }
  static DeviceArray<std::byte> bytes_of(const void* data, DType type, std::int64_t rows, std::int64_t stride) {
    return copy(static_cast<const std::byte*>(data), dtype_bytes(type, rows * stride));
  }

  std::unique_ptr<Runner> runner_;
};

}  // namespace sluice::gpu_tests
