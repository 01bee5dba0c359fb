// Instances of the expert GEMM kernel for bf16.
#include "cuda/sm90/gemm_instance.cuh"

namespace sluice::cuda::sm90 {

template cudaError_t launch_gemm<Format::bf16>(const GemmArgs&, const LaunchShape&, cudaStream_t);
template cudaError_t prepare_gemm<Format::bf16>();

}  // namespace sluice::cuda::sm90
