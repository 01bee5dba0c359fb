// Owned memory of a GPU, and pinned host memory that copies to it can run from. Called at load time only. Throw
// Error(resources) naming the size; thread-safe.
#pragma once

#include <cstddef>

#include "core/buffer.h"

namespace sluice::cuda {

// Device memory, aligned to 256 bytes, not initialised. 0 bytes give an empty buffer.
Buffer device_buffer(std::size_t bytes, int device);

// Copy into device memory of the current GPU, and fill it; what follows on any stream finds it done. For loading, tests
// and measurements; throw Error of what CUDA said while `doing` that. A plain copy from memory that is not page-locked,
// and a plain fill, return before that, and other streams do not wait for them.
void copy_to_device(void* to, const void* from, std::size_t bytes, const char* doing);
void fill_device(void* to, int value, std::size_t bytes, const char* doing);

// Page-locked host memory.
Buffer pinned_buffer(std::size_t bytes);

}  // namespace sluice::cuda
