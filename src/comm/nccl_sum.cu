#include "comm/nccl_sum.h"

namespace sluice::comm {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks = 2048;

__global__ void sum_kernel(const float* parts, int ranks, std::int64_t count, float* sum) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; c < count; c += step) {
    float s = parts[c];
    for (int r = 1; r < ranks; ++r) s = __fadd_rn(s, parts[r * count + c]);
    sum[c] = s;
  }
}

}  // namespace

cudaError_t sum_ranks(const float* parts, int ranks, std::int64_t count, float* sum, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const std::int64_t blocks = (count + kThreads - 1) / kThreads;
  sum_kernel<<<static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks), kThreads, 0, stream>>>(parts, ranks,
                                                                                                        count, sum);
  return cudaGetLastError();
}

}  // namespace sluice::comm
