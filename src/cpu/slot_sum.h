// The weighted sum over the slot rows of each token, for rows that came back from other ranks.
//
// Called by CpuBackend. Throws Error(usage) when types or shapes do not fit, and for more than 64 slots. It uses the
// kernel that sums the slot rows of the `cpu` runner, so that bits agree.
#pragma once

#include "core/thread_pool.h"
#include "cpu/gemm.h"
#include "moe/backend.h"

namespace sluice::cpu {

void sum_slot_rows(const SlotSumArgs& args, const GemmKernels& kernels, ThreadPool& pool);

}  // namespace sluice::cpu
