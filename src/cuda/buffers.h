// Owned memory of a GPU, and pinned host memory that copies to it can run from. Called at load time only. Throw
// Error(resources) naming the size; thread-safe.
#pragma once

#include <cstddef>

#include "core/buffer.h"

namespace sluice::cuda {

// Device memory, aligned to 256 bytes, not initialised. 0 bytes give an empty buffer.
Buffer device_buffer(std::size_t bytes, int device);

// Page-locked host memory.
Buffer pinned_buffer(std::size_t bytes);

}  // namespace sluice::cuda
