// What the weights and the KV cache of a model take on each rank, from headers alone.
//
// Called by `sluice check` and `sluice explain`. Reads no weights. Bytes are those of the stored format; resident
// layouts differ by padding, f32 vectors and, for copies that a runner decodes, by type.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/scheme.h"
#include "model/config.h"
#include "moe/parallel.h"

namespace sluice::app {

struct MemoryPlan {
  std::int64_t expert_bytes = 0;  // of the rank's experts, or pieces of experts
  std::int64_t linear_bytes = 0;  // the rank's part of attention, dense and shared FFNs, output projection
  // Its part of the embedding; norms, routers and latent projections, which are whole on every rank.
  std::int64_t replicated_bytes = 0;
  std::int64_t kv_bytes_per_token = 0;
  std::int64_t weight_bytes() const { return expert_bytes + linear_bytes + replicated_bytes; }
};

// One rank that holds everything. `formats` is what WeightSource::formats says after everything was asked for.
MemoryPlan plan_memory(const model::ModelConfig& config, const std::vector<ckpt::FormatUse>& formats);

// One plan a rank, cut as loading cuts. Asks the source for every weight once; views without data will do. Throws
// Error(unsupported) when a rank would have nothing. `sizes` as resolve() returns them.
std::vector<MemoryPlan> plan_ranks(const model::ModelConfig& config, ckpt::WeightSource& source,
                                   const ParallelSizes& sizes);

// The one with the most weights.
const MemoryPlan& largest(const std::vector<MemoryPlan>& plans);

}  // namespace sluice::app
