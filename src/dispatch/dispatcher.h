// How tokens reach the ranks that hold their experts, and how results come back (architecture 4.7).
//
// MoeLayer calls dispatch, runs the experts on what it returns, then calls combine. All ranks call both, those without
// tokens too. Scratch comes from the workspace; nothing is allocated. One object serves one layer of one rank, one
// thread at a time; what it points into the workspace lives from dispatch to the end of combine.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/group.h"
#include "core/function_ref.h"
#include "core/tensor.h"
#include "core/workspace.h"
#include "moe/backend.h"
#include "moe/ids.h"
#include "moe/parallel.h"
#include "moe/placement.h"
#include "moe/runner.h"

namespace sluice {

struct DispatchInput {
  ConstTensorView hidden;          // [T, W] compute type, tokens of this rank; the same on all ranks of `attention`
  const LogicalId* ids = nullptr;  // [T, k]
  const float* weights = nullptr;  // [T, k]
  std::int32_t top_k = 0;
};

// What the runner of this rank computes: RunArgs but for workspace and stream.
struct Dispatched {
  ConstTensorView hidden;          // [T', W]
  QuantizedRows quantized;         // or this in place of `hidden`
  const SlotId* ids = nullptr;     // [T', k']
  const float* weights = nullptr;  // [T', k']
  std::int32_t top_k = 0;          // k'
  SlotRange slots;                 // held by this rank
  TensorView sum;                  // where the weighted sums go; absent = the output of the layer
  TensorView routes;               // or where the slot rows go
};

// Rows that this rank's experts have computed, for statistics: plain counters, read by the thread that runs the layer.
struct SlotLoad {
  std::vector<std::int64_t> rows;  // [local slots]
};

class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  virtual DispatchKind kind() const = 0;
  // With up to `tokens` tokens on every rank: scratch, and the most rows that dispatch gives to the runner, which are
  // reached when every token of the model goes to experts of this rank.
  virtual std::size_t workspace_bytes(std::int64_t tokens, std::int32_t top_k, std::int64_t width) const = 0;
  virtual std::int64_t most_rows(std::int64_t tokens) const = 0;

  virtual Dispatched dispatch(const DispatchInput& input, Workspace& workspace, Stream stream) = 0;
  // Completes `out` [T, W], f32 when there are other ranks; where Dispatched named no other memory, it holds this
  // rank's part of the sum. `meanwhile` is called once, while rows are under way if any are.
  virtual void combine(const TensorView& out, FunctionRef<void()> meanwhile, Workspace& workspace, Stream stream) = 0;
};

struct DispatcherOptions {
  RankPlan plan;
  Group* world = nullptr;      // all ranks; not owned; nullptr = one rank
  Group* attention = nullptr;  // ranks with the same tokens; not owned; nullptr where that is `world` or one rank
  Backend* backend = nullptr;  // not owned
  std::shared_ptr<const Placement> placement;  // over plan.experts.count ranks
  Recipe recipe = Recipe::bf16;
  bool weight_on_input = false;  // LayerSpec's
  // Rows travel in the GEMM1 input format, see can_quantize_rows; the runner must take them
  // (Runner::takes_quantized_rows).
  bool quantized_rows = false;
  float input_scale = 0.0f;  // LayerInputScales::gemm1, for quantized_rows
  SlotLoad* load = nullptr;  // counted into, by CPU ranks; not owned; nullptr = not wanted
};

// One rank: local. Without dp attention and a2a: allreduce. With dp attention alone: allgather. With a2a: alltoall.
DispatchKind dispatch_kind(const ParallelSizes& sizes);

// Whether rows may travel quantised: where rows travel at all, in recipes whose GEMM1 input is NVFP4. They have the
// bits that the runner would have made of them.
bool can_quantize_rows(const DispatcherOptions& options);

// Throws Error(usage) when groups and placement do not fit the plan.
std::unique_ptr<Dispatcher> make_dispatcher(const DispatcherOptions& options);

// One rank that holds all `experts`; slot = logical id.
std::unique_ptr<Dispatcher> make_local_dispatcher(std::int32_t experts);

}  // namespace sluice
