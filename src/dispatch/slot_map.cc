#include "dispatch/slot_map.h"

#include <utility>

namespace sluice {
namespace {

bool is_identity(const Placement& placement) {
  if (placement.slots() != placement.experts()) return false;
  for (std::int32_t s = 0; s < placement.slots(); ++s) {
    if (raw(placement.expert_of(SlotId{s})) != s) return false;
  }
  return true;
}

}  // namespace

SlotMap::SlotMap(std::shared_ptr<const Placement> placement)
    : placement_(std::move(placement)), identity_(is_identity(*placement_)) {}

std::size_t SlotMap::workspace_bytes(std::int64_t tokens, std::int32_t top_k) const {
  return identity_ ? 0 : Workspace::rounded_bytes(static_cast<std::size_t>(tokens * top_k) * sizeof(SlotId));
}

const SlotId* SlotMap::map(const LogicalId* ids, std::int64_t tokens, std::int32_t top_k, std::int64_t first_token,
                           Workspace& workspace) const {
  // Both types are stored as int32.
  if (identity_) return reinterpret_cast<const SlotId*>(ids);
  auto* slots = workspace.take<SlotId>(tokens * top_k);
  for (std::int64_t r = 0; r < tokens * top_k; ++r) {
    slots[r] = placement_->slot_for(ids[r], first_token + r / top_k);
  }
  return slots;
}

}  // namespace sluice
