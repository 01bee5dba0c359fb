// Choosing the next token of each row of logits.
//
// Called by CpuBackend::sample; rows are independent of each other. Logits are edited first, which log-probabilities do
// not see. Filters are applied in the order of transformers: temperature, then top_k, then top_p over what top_k left
// (renormalised), then min_p relative to the most probable token. Equal logits rank by lower id, so top_k keeps exactly
// k. The token is then drawn by inverting the cumulative distribution in the order of ids, with one random number that
// depends on (seed, step) only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/thread_pool.h"
#include "core/workspace.h"
#include "cpu/ops_kernels.h"
#include "moe/backend.h"

namespace sluice::cpu {

// Below this temperature the row is decided greedily: dividing by less adds nothing and can overflow.
inline constexpr float kGreedyTemperature = 1e-5f;

void sample_rows(const SampleArgs& args, const OpsKernels& kernels, ThreadPool& pool, Workspace& workspace);

// For rows of up to `vocab` logits.
std::size_t sample_workspace_bytes(int threads, std::int64_t vocab);

}  // namespace sluice::cpu
