// The sum of a device group: parts of all ranks, added in ascending order. Called by nccl.cc; asynchronous.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace sluice::comm {

// sum[c] = parts[0][c] + parts[1][c] + ..., fp32, one rounding an addition. parts [ranks, count]; `sum` may not overlap
// parts.
cudaError_t sum_ranks(const float* parts, int ranks, std::int64_t count, float* sum, cudaStream_t stream);

}  // namespace sluice::comm
