// Instances of the expert GEMM kernel for fp8_block.
#include "cuda/sm90/gemm_instance.cuh"

namespace sluice::cuda::sm90 {

template cudaError_t launch_gemm<Format::fp8_block>(const GemmArgs&, const LaunchShape&, cudaStream_t);
template cudaError_t prepare_gemm<Format::fp8_block>();

}  // namespace sluice::cuda::sm90
