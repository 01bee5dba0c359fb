// CUDA status codes as sluice::Error. Called after every call of the CUDA runtime. Pure functions; thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/device.h"
#include "core/error.h"

namespace sluice::cuda {

// Throws Error(resources) for anything but success; `what` is what was being done, in words.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  fail(ErrorCode::resources,
       std::string("CUDA: ") + what + ": " + cudaGetErrorName(status) + " (" + cudaGetErrorString(status) + ")");
}

inline cudaStream_t raw(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace sluice::cuda
