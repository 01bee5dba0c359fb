// Sorts routes by expert: which rows of a batch each local expert computes.
//
// Called by runners that work expert by expert. The memory belongs to the caller's workspace; pure function of its
// input: thread-safe, no other allocation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/workspace.h"
#include "moe/ids.h"

namespace sluice {

// A route is t * k + s. Those of local expert e are routes[offsets[e]] .. routes[offsets[e + 1] - 1], ascending.
struct Permutation {
  const std::int64_t* offsets = nullptr;  // [experts + 1]
  const std::int64_t* routes = nullptr;   // [offsets[experts]]
  std::int32_t experts = 0;               // E_local

  std::int64_t total() const { return experts == 0 ? 0 : offsets[experts]; }
};

// Workspace bytes of permute().
std::size_t permutation_bytes(std::int64_t tokens, std::int32_t top_k, std::int32_t local_experts);

// ids [tokens, top_k]. Ids outside `slots` are skipped (-1, other ranks, anything too large); an id may come several
// times in one token. Cost: two passes over the ids.
Permutation permute(const SlotId* ids, std::int64_t tokens, std::int32_t top_k, SlotRange slots, Workspace& workspace);

}  // namespace sluice
