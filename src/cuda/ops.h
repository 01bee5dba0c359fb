// Kernels of the CUDA backend, as functions that launch on a stream. Called by backend_cuda.cc alone; arguments are
// those of moe/backend.h with device pointers.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/reference_dot.h"
#include "moe/backend.h"

namespace sluice::cuda {

struct LinearLaunch {
  ConstTensorView x;  // [T, K] f32 or bf16
  DotRule rule;
  DotMatrix weight;
  float static_scale = 0.0f;
  const float* bias = nullptr;
  TensorView y;
  bool accumulate = false;
  float* rows = nullptr;    // scratch [T, K]
  float* scales = nullptr;  // scratch [T, ceil(K / 128)]
};
cudaError_t launch_linear(const LinearLaunch& args, cudaStream_t stream);

cudaError_t launch_activate(const ActivationSpec& spec, const ConstTensorView& gate, const ConstTensorView& up,
                            const TensorView& out, cudaStream_t stream);
cudaError_t launch_add(const TensorView& into, const ConstTensorView& x, cudaStream_t stream);
cudaError_t launch_add_gated(const TensorView& into, const ConstTensorView& x, const ConstTensorView& gate,
                             cudaStream_t stream);

// All methods of routing.h but hash, a warp a token. The correction bias is device memory.
inline constexpr std::int32_t kChoiceMostExperts = 4000;
cudaError_t launch_choice(const RoutingSpec& spec, const RouteInput& input, const RouteOutput& output,
                          cudaStream_t stream);

}  // namespace sluice::cuda
