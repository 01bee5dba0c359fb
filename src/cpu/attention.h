// Attention over the paged KV cache, for any mix of prompt chunks and single tokens.
//
// Called by CpuBackend::attention. The unit of work is a tile of query rows against one chunk of keys; the chunks of a
// tile are computed by different threads and folded in ascending order, so a long context keeps all threads busy even
// for one token, and the bits of a row depend on its own query, position and keys only.
#pragma once

#include <cstddef>

#include "core/thread_pool.h"
#include "core/workspace.h"
#include "cpu/ops_kernels.h"
#include "moe/backend.h"

namespace sluice::cpu {

void attend(const AttentionArgs& args, const OpsKernels& kernels, ThreadPool& pool, Workspace& workspace);

// Independent of batch and context: more work than fits is done in waves.
std::size_t attention_workspace_bytes(int threads);

}  // namespace sluice::cpu
