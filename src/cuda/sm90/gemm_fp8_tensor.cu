// Instances of the expert GEMM kernel for fp8_tensor.
#include "cuda/sm90/gemm_instance.cuh"

namespace sluice::cuda::sm90 {

template cudaError_t launch_gemm<Format::fp8_tensor>(const GemmArgs&, const LaunchShape&, cudaStream_t);
template cudaError_t prepare_gemm<Format::fp8_tensor>();

}  // namespace sluice::cuda::sm90
