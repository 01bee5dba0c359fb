// How tokens reach the ranks that hold their experts, and how results come back (architecture 4.7).
//
// MoeLayer calls dispatch, runs the experts on what it returns, then calls combine. Ranks without tokens call both too.
// Scratch comes from the workspace; nothing is allocated. One object serves one layer of one rank.
#pragma once

#include <cstdint>
#include <memory>

#include "core/tensor.h"
#include "core/workspace.h"
#include "moe/ids.h"
#include "moe/runner.h"

namespace sluice {

struct DispatchInput {
  ConstTensorView hidden;          // [T, H] compute type, tokens of this rank
  const LogicalId* ids = nullptr;  // [T, k]
  const float* weights = nullptr;  // [T, k]
  std::int32_t top_k = 0;
};

// What the runner of this rank computes on.
struct Dispatched {
  ConstTensorView hidden;          // [T', H]
  const SlotId* ids = nullptr;     // [T', k]
  const float* weights = nullptr;  // [T', k]
  SlotRange slots;                 // held by this rank
};

class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  virtual DispatchKind kind() const = 0;
  virtual std::size_t workspace_bytes(std::int64_t tokens, std::int32_t top_k, std::int64_t hidden) const = 0;
  virtual Dispatched dispatch(const DispatchInput& input, Workspace& workspace, Stream stream) = 0;
  // Completes `sum` [T, H], which holds this rank's contribution.
  virtual void combine(const TensorView& sum, Workspace& workspace, Stream stream) = 0;
};

// One rank that holds all `experts`; slot = logical id.
std::unique_ptr<Dispatcher> make_local_dispatcher(std::int32_t experts);

}  // namespace sluice
