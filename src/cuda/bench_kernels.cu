#include <cuda_runtime.h>

#include "cuda/bench_kernels.h"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace sluice::cuda::bench {
namespace {

constexpr int kReadThreads = 512, kReadAhead = 8, kReadBlocks = 8;  // of a multiprocessor
constexpr int kProductGroups = 2, kProductThreads = kProductGroups * 128, kProductColumns = 256, kProductSteps = 2048;
constexpr int kRowBytes = 128, kSlices = 4;  // 32 bytes of K each
constexpr int kRowsA = 64;
constexpr int kProductBytes = (kProductGroups * kRowsA + kProductColumns) * kRowBytes + 1024;

__global__ void __launch_bounds__(kReadThreads) read_kernel(const uint4* data, std::size_t count, std::uint32_t* sink) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  std::uint32_t seen = 0;
  for (; i + (kReadAhead - 1) * step < count; i += kReadAhead * step) {
    uint4 v[kReadAhead];
#pragma unroll
    for (int j = 0; j < kReadAhead; ++j) v[j] = __ldcs(data + i + j * step);
#pragma unroll
    for (int j = 0; j < kReadAhead; ++j) seen ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  for (; i < count; i += step) seen ^= data[i].x ^ data[i].y ^ data[i].z ^ data[i].w;
  if (seen == 0x12345u) *sink = seen;
}

__global__ void empty_kernel() {}

// Random signs and mantissas near one, because a unit fed with zeros runs faster than with data.
__device__ std::uint32_t random_operands(std::uint32_t i, bool bf16) {
  std::uint32_t h = (i + 1u) * 0x9E3779B9u;
  h = (h ^ h >> 15) * 0x85EBCA6Bu;
  h ^= h >> 13;
  return bf16 ? (h & 0x807F807Fu) | 0x3F803F80u : (h & 0x87878787u) | 0x38383838u;
}

template <ptx::Operand Type>
__global__ void __launch_bounds__(kProductThreads, 1) product_kernel(std::uint32_t* sink) {
  extern __shared__ std::uint8_t raw[];
  const auto base = (static_cast<std::uint32_t>(__cvta_generic_to_shared(raw)) + 1023u) / 1024u * 1024u;
  auto* words =
      reinterpret_cast<std::uint32_t*>(raw + (base - static_cast<std::uint32_t>(__cvta_generic_to_shared(raw))));
  for (int i = threadIdx.x; i < (kProductBytes - 1024) / 4; i += kProductThreads) {
    words[i] = random_operands(static_cast<std::uint32_t>(i), Type == ptx::Operand::bf16);
  }
  ptx::fence_async_shared();
  __syncthreads();
  const std::uint64_t a = ptx::swizzled_operand(base + (threadIdx.x / 128) * kRowsA * kRowBytes);
  const std::uint64_t b = ptx::swizzled_operand(base + kProductGroups * kRowsA * kRowBytes);
  float d[kProductColumns / 2] = {};
  ptx::keep_in_registers(d);
  for (int step = 0; step < kProductSteps; ++step) {
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSlices; ++k) {
      ptx::wgmma<kProductColumns, Type>(d, a + k * ptx::kSliceStep, b + k * ptx::kSliceStep, 1);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
  }
  ptx::wgmma_wait<0>();
  ptx::keep_in_registers(d);
  float sum = 0.0f;
  for (const float v : d) sum += v;
  if (sum == 0.12345f) *sink = 1;
}

template <ptx::Operand Type>
cudaError_t products(int processors, std::uint32_t* sink, double* operations, cudaStream_t stream) {
  const cudaError_t status =
      cudaFuncSetAttribute(product_kernel<Type>, cudaFuncAttributeMaxDynamicSharedMemorySize, kProductBytes);
  if (status != cudaSuccess) return status;
  product_kernel<Type><<<static_cast<unsigned>(processors), kProductThreads, kProductBytes, stream>>>(sink);
  const double columns = Type == ptx::Operand::bf16 ? kRowBytes / 2 : kRowBytes;
  *operations = 2.0 * processors * kProductGroups * kRowsA * kProductColumns * columns * kProductSteps;
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_read(const void* data, std::size_t bytes, int processors, std::uint32_t* sink, cudaStream_t stream) {
  read_kernel<<<static_cast<unsigned>(processors * kReadBlocks), kReadThreads, 0, stream>>>(
      static_cast<const uint4*>(data), bytes / sizeof(uint4), sink);
  return cudaGetLastError();
}

cudaError_t launch_empty(cudaStream_t stream) {
  empty_kernel<<<1, 32, 0, stream>>>();
  return cudaGetLastError();
}

cudaError_t launch_products(Products type, int processors, std::uint32_t* sink, double* operations,
                            cudaStream_t stream) {
  if (type == Products::bf16) return products<ptx::Operand::bf16>(processors, sink, operations, stream);
  return products<ptx::Operand::e4m3>(processors, sink, operations, stream);
}

}  // namespace sluice::cuda::bench
