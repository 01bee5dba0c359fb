// From the ids that routing chose to slots: the one place where an id changes its space (moe/ids.h).
//
// Made by dispatchers. Immutable: thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/workspace.h"
#include "moe/ids.h"
#include "moe/placement.h"

namespace sluice {

class SlotMap {
 public:
  explicit SlotMap(std::shared_ptr<const Placement> placement);

  const Placement& placement() const { return *placement_; }
  // Expert e is in slot e, so that ids need not be looked at: they may lie in device memory.
  bool identity() const { return identity_; }

  std::size_t workspace_bytes(std::int64_t tokens, std::int32_t top_k) const;
  // [T, k] slots of the routes of T tokens. Copies of an expert take turns by token, counted from `first_token`. Ids
  // that are no expert's become ids that are no slot's.
  const SlotId* map(const LogicalId* ids, std::int64_t tokens, std::int32_t top_k, std::int64_t first_token,
                    Workspace& workspace) const;

 private:
  std::shared_ptr<const Placement> placement_;
  bool identity_;
};

}  // namespace sluice
