#include "cuda/backend.h"

#include <fstream>

#include "core/error.h"
#include "cuda/backend_cuda.h"
#include "cuda/device.h"

namespace sluice::cuda {

Status status(const std::string& driver_file) {
  Status s;
  std::string why;
  const int count = device_count(&why);
  std::ifstream file(driver_file);
  std::string driver;
  std::getline(file, driver);
  if (count == 0) {
    s.found = "none: this build has a CUDA backend, but " + why + "; " +
              (driver.empty() ? std::string("no NVIDIA driver found") : "driver found: " + driver);
    s.advice = "models run on the CPU; for a GPU install an NVIDIA driver for CUDA 13 (nvidia-smi must list the GPU)";
    return s;
  }
  const DeviceInfo first = device_info(0);
  s.usable = true;
  s.found = std::to_string(count) + (count == 1 ? " GPU: " : " GPUs, first: ") + first.name + ", " +
            std::to_string(first.memory_bytes >> 30) + " GiB, " + std::to_string(first.processors) +
            " multiprocessors; MoE layers run there (`layer`, `bench moe`), whole models on the CPU";
  if (!first.hopper()) s.advice = "the kernels of this version are for Hopper (compute capability 9.0)";
  return s;
}

std::unique_ptr<Backend> make_backend(int device_index) {
  const Status s = status();
  if (!s.usable) fail(ErrorCode::unsupported, "GPU " + std::to_string(device_index) + ": " + s.found, "", s.advice);
  return std::make_unique<CudaBackend>(device_index);
}

}  // namespace sluice::cuda
