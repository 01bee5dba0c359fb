// What the weights and the KV cache of a model take on each rank, from headers alone.
//
// Called by `sluice check` and `sluice explain`. Pure arithmetic on plain data. Resident layouts differ from the file's
// by padding and, for copies that a runner decodes, by type; a runner's own figure is known only once it has prepared.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/scheme.h"
#include "model/config.h"

namespace sluice::app {

// SGLang's meaning of the sizes: `tp` ranks in all, experts spread over `ep` of them, so that each expert is cut into
// tp / ep pieces.
struct Split {
  std::int64_t tp = 1;
  std::int64_t ep = 1;
  std::int64_t pieces() const { return tp / ep; }
};

struct MemoryPlan {
  std::int64_t expert_bytes = 0;      // of the rank with the most experts
  std::int64_t linear_bytes = 0;      // attention, dense and shared FFNs, output projection: cut over the ranks
  std::int64_t replicated_bytes = 0;  // embedding, norms, routers, latent projections: whole on every rank
  std::int64_t kv_bytes_per_token = 0;
  std::int64_t weight_bytes() const { return expert_bytes + linear_bytes + replicated_bytes; }
};

// `formats` is what WeightSource::formats says after everything was asked for.
MemoryPlan plan_memory(const model::ModelConfig& config, const std::vector<ckpt::FormatUse>& formats,
                       const Split& split);

}  // namespace sluice::app
