// Kernels that measure the GPU itself, for layer_bench.cc. Launch on a stream; no synchronisation.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace sluice::cuda::bench {

// Reads `bytes` (a multiple of 16) with plain loads; `sink` keeps the compiler from leaving that out.
cudaError_t launch_read(const void* data, std::size_t bytes, int processors, std::uint32_t* sink, cudaStream_t stream);
cudaError_t launch_empty(cudaStream_t stream);

// Matrix products of operands that stay in shared memory; returns the operations of one launch in `operations`.
enum class Products : std::uint8_t { bf16, e4m3 };
cudaError_t launch_products(Products type, int processors, std::uint32_t* sink, double* operations,
                            cudaStream_t stream);

}  // namespace sluice::cuda::bench
