// Instead of the CUDA backend, in builds without it.
#include <fstream>

#include "core/error.h"
#include "cuda/backend.h"

namespace sluice::cuda {

Status status(const std::string& driver_file) {
  std::ifstream file(driver_file);
  std::string driver;
  std::getline(file, driver);
  Status s;
  s.found = "none: this build has no CUDA backend; " +
            (driver.empty() ? std::string("no NVIDIA driver found") : "driver found: " + driver);
  s.advice = "this version runs models on the CPU only; a CUDA backend is to follow, as the CMake preset `cuda`";
  return s;
}

std::unique_ptr<Backend> make_backend(int device_index) {
  const Status s = status();
  fail(ErrorCode::unsupported, "GPU " + std::to_string(device_index) + ": " + s.found, "", s.advice);
}

}  // namespace sluice::cuda
