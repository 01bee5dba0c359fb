// Definitions behind gemm_launch.cuh; included by gemm_<format>.cu only, which instantiate them.
#pragma once

#include <algorithm>

#include "cuda/sm90/gemm_kernel.cuh"
#include "cuda/sm90/gemm_launch.cuh"

namespace sluice::cuda::sm90 {

// Clusters may leave multiprocessors empty.
template <int NT, Format F, bool Curve, bool Direct = false>
cudaError_t launch_instance(const GemmArgs& args, const LaunchShape& shape, cudaStream_t stream) {
  if (shape.split > SharedLayout<NT>::kMaxSplit) return cudaErrorInvalidValue;
  const int cluster = std::max(shape.split, SharedLayout<NT>::kCluster);
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.sm_count / cluster * cluster);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = SharedLayout<NT>::kBytes;
  config.stream = stream;
  config.attrs = attributes;
  if (shape.pdl) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  }
  if (cluster > 1) {
    int clusters = 0;
    const cudaError_t error = cudaOccupancyMaxActiveClusters(&clusters, expert_gemm<NT, F, Curve, Direct>, &config);
    if (error != cudaSuccess) return error;
    config.gridDim.x = std::min(static_cast<int>(config.gridDim.x), clusters * cluster);
  }
  return cudaLaunchKernelEx(&config, expert_gemm<NT, F, Curve, Direct>, args);
}

template <int NT, Format F>
cudaError_t launch_tile(const GemmArgs& args, const LaunchShape& shape, cudaStream_t stream) {
  if (shape.curve && NT == kLargeTokens && args.direct.out != nullptr) {
    return launch_instance<NT, F, true, NT == kLargeTokens>(args, shape, stream);
  }
  if (shape.curve) return launch_instance<NT, F, true>(args, shape, stream);
  if constexpr (NT == 16 || NT == 64) return launch_instance<NT, F, false>(args, shape, stream);
  return cudaErrorInvalidValue;
}

template <Format F>
cudaError_t launch_gemm(const GemmArgs& args, const LaunchShape& shape, cudaStream_t stream) {
  switch (shape.token_tile) {
    case 8:
      return launch_tile<8, F>(args, shape, stream);
    case 16:
      return launch_tile<16, F>(args, shape, stream);
    case 32:
      return launch_tile<32, F>(args, shape, stream);
    case 64:
      return launch_tile<64, F>(args, shape, stream);
    case 128:
      return launch_tile<128, F>(args, shape, stream);
  }
  return cudaErrorInvalidValue;
}

template <int NT, Format F, bool Curve, bool Direct = false>
cudaError_t prepare_instance() {
  return cudaFuncSetAttribute(expert_gemm<NT, F, Curve, Direct>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              SharedLayout<NT>::kBytes);
}

template <Format F>
cudaError_t prepare_gemm() {
  const cudaError_t errors[] = {prepare_instance<8, F, true>(),   prepare_instance<16, F, true>(),
                                prepare_instance<32, F, true>(),  prepare_instance<64, F, true>(),
                                prepare_instance<128, F, true>(), prepare_instance<16, F, false>(),
                                prepare_instance<64, F, false>(), prepare_instance<128, F, true, true>()};
  for (const cudaError_t e : errors) {
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

}  // namespace sluice::cuda::sm90
