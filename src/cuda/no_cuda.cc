// Instead of the CUDA backend and the Hopper runner, in builds without them.
#include <fstream>

#include "core/error.h"
#include "cuda/backend.h"
#include "cuda/layer_bench.h"
#include "cuda/runner_hopper.h"

namespace sluice::cuda {
namespace {

constexpr const char* kAdvice =
    "this build runs models on the CPU; the CMake preset `cuda` builds the backend where nvcc is found";

// In the list of runners, so that reports name it and say why it is not there.
class NoHopperRunner final : public Runner {
 public:
  std::string_view name() const override { return "hopper"; }
  Verdict supports(const Problem&) const override { return Verdict::no("this build has no CUDA backend"); }
  std::unique_ptr<PreparedExperts> prepare(const Problem&, ExpertWeights&&) const override { refuse(); }
  void reload(PreparedExperts&, ExpertWeights&&) const override { refuse(); }
  std::size_t workspace_bytes(const Problem&, std::int64_t) const override { return 0; }
  void run(const PreparedExperts&, const RunArgs&) const override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    fail(ErrorCode::unsupported, "runner hopper: this build has no CUDA backend", "", kAdvice);
  }
};

}  // namespace

Status status(const std::string& driver_file) {
  std::ifstream file(driver_file);
  std::string driver;
  std::getline(file, driver);
  Status s;
  s.found = "none: this build has no CUDA backend; " +
            (driver.empty() ? std::string("no NVIDIA driver found") : "driver found: " + driver);
  s.advice = kAdvice;
  return s;
}

std::unique_ptr<Backend> make_backend(int device_index) {
  const Status s = status();
  fail(ErrorCode::unsupported, "GPU " + std::to_string(device_index) + ": " + s.found, "", s.advice);
}

std::unique_ptr<Runner> make_hopper_runner(ThreadPool*, const HopperOptions&) {
  return std::make_unique<NoHopperRunner>();
}

std::unique_ptr<LayerBench> make_layer_bench(int device, ThreadPool*) {
  const Status s = status();
  fail(ErrorCode::unsupported, "GPU " + std::to_string(device) + ": " + s.found, "", s.advice);
}

std::string hopper_kernel(const Problem&, std::int64_t, std::int64_t) { return "none"; }

}  // namespace sluice::cuda
