// Launching kernels as programmatic dependents: the next kernel of a stream may start its prologue while the one before
// ends, and waits where it first needs its results. For .cu files of this layer.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

namespace sluice::cuda {

// In a kernel launched by launch_dependent, before the first read of what an earlier kernel wrote and before the first
// write to what one may still read.
__device__ inline void wait_for_previous_kernel() { cudaGridDependencySynchronize(); }

// Lets the next kernel of the stream start its prologue, once all blocks have called it.
__device__ inline void let_next_kernel_start() { cudaTriggerProgrammaticLaunchCompletion(); }

template <class... Params, class... Args>
cudaError_t launch_dependent(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
                             cudaStream_t stream, Args&&... args) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

}  // namespace sluice::cuda
