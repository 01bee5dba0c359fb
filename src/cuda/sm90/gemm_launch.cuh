// Launches one instance of the expert GEMM kernel; the instances of a format live in gemm_<format>.cu.
//
// Called by launch.cu. Thread-safe.
#pragma once

#include "cuda/sm90/gemm_args.cuh"

namespace sluice::cuda::sm90 {

struct LaunchShape {
  std::int32_t token_tile, split;
  bool curve;  // the activation is a GateCurve
  std::int32_t sm_count;
  bool pdl;
};

// cudaErrorInvalidValue for a token tile or split there is no instance of.
template <Format F>
cudaError_t launch_gemm(const GemmArgs& args, const LaunchShape& shape, cudaStream_t stream);
template <Format F>
cudaError_t prepare_gemm();

}  // namespace sluice::cuda::sm90
