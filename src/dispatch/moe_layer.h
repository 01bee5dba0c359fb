// One MoE block: router > routing > dispatch > experts > combine > shared expert. The only place with that order. A
// shared expert of which a rank holds a piece comes before combine; with alltoall a whole one is computed during it.
//
// Built at load time by the model; `forward` allocates nothing and is called by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "core/buffer.h"
#include "core/trace.h"
#include "dispatch/dispatcher.h"
#include "dispatch/shared_expert.h"
#include "moe/backend.h"
#include "moe/runner.h"

namespace sluice {

struct MoeLayerParts {
  Backend* backend = nullptr;      // not owned; outlives the layer
  const Runner* runner = nullptr;  // not owned; outlives the layer
  Problem problem;
  std::unique_ptr<PreparedExperts> experts;
  std::unique_ptr<Dispatcher> dispatcher;
  std::unique_ptr<DenseWeight> router;   // [E, H], prepared for f32 compute
  Buffer router_bias;                    // [E] f32 added to the logits, or empty
  Buffer correction_bias;                // owner of problem.layer.routing.correction_bias, or empty
  std::unique_ptr<SharedExpert> shared;  // nullptr when the layer has none, or has it among the routed experts
};

struct MoeInput {
  ConstTensorView hidden;                   // [T, H] compute type: what experts read
  ConstTensorView hidden_f32;               // [T, H] f32: what the router reads
  const std::int32_t* token_ids = nullptr;  // [T], for hash routing
  const LogicalId* ids = nullptr;           // [T, k] given instead of routed, with `weights`; nullptr = route
  const float* weights = nullptr;           // [T, k]
  StageSink* stages = nullptr;              // debugging
  Trace* trace = nullptr;                   // spans of the parts
  bool routed_only = false;                 // leave out the shared expert
};

// What routing chose, for reports; points into the workspace and is valid until the caller's scope ends.
struct MoeRoutes {
  const LogicalId* ids = nullptr;  // [T, k]
  const float* weights = nullptr;  // [T, k]
};

class MoeLayer {
 public:
  explicit MoeLayer(MoeLayerParts parts);

  const Problem& problem() const { return parts_.problem; }
  std::size_t workspace_bytes(std::int64_t tokens) const;

  // out: [T, H] f32 (or bf16 where there are neither a shared expert nor other ranks), overwritten. T = 0 is fine.
  MoeRoutes forward(const MoeInput& input, const TensorView& out, Workspace& workspace, Stream stream) const;

 private:
  MoeRoutes route_tokens(const MoeInput& input, Workspace& workspace, Stream stream) const;
  Dispatched dispatch(const MoeInput& input, const MoeRoutes& routes, Workspace& workspace, Stream stream) const;
  void run_experts(const MoeInput& input, const MoeRoutes& routes, const TensorView& out, Workspace& workspace,
                   Stream stream) const;
  void combine(const MoeInput& input, const TensorView& out, Workspace& workspace, Stream stream) const;
  bool overlaps() const;  // the shared expert with combine

  MoeLayerParts parts_;
};

}  // namespace sluice
