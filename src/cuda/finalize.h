// F: makes the output of the layer from slot rows (architecture 4.4). Sum: fp32 in slot order from zero, weight * row
// and the addition rounded apart, one final rounding; zeros for tokens without a row. Routes: the slot rows themselves,
// zeros where a slot is skipped. Launches on the caller's stream, as a dependent of the kernel before it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace sluice::cuda {

struct FinalizeArgs {
  const void* slot_rows = nullptr;          // [R, row_stride] bf16, sorted by expert
  std::int64_t slot_row_stride = 0;         // elements, a multiple of 8
  const std::int32_t* route_row = nullptr;  // [T, k] sorted row or -1
  const float* weights = nullptr;           // [T, k]; nullptr = every weight is 1 (weights went into the input)
  std::int64_t tokens = 0;                  // T
  std::int32_t top_k = 1;                   // k
  std::int64_t width = 0;                   // H
  void* out = nullptr;                      // [T, H] (sum) or [T * k, H] (routes)
  std::int64_t out_row_stride = 0;          // elements
  bool out_bf16 = false;                    // else f32
  bool routes = false;
};

cudaError_t launch_finalize(const FinalizeArgs& args, cudaStream_t stream);

}  // namespace sluice::cuda
