// Which rank of a run an engine is of, and how its ranks reach each other. Plain data, filled by app/, read once by
// Engine (rank 0) and follow() (all others).
#pragma once

#include "comm/group.h"
#include "moe/parallel.h"

namespace sluice::engine {

struct EngineRanks {
  Group* world = nullptr;  // all ranks; not owned, outlives the engine; nullptr = one rank
  RankPlan plan;           // of this rank
  // While nothing is to be done, rank 0 sends word this often, so that followers can tell an idle rank 0 from a dead
  // one: below the limit of the group's waits.
  double idle_seconds = 5;

  bool several() const { return world != nullptr && world->size() > 1; }
  // The rank of a dp group that samples for it.
  bool leads_group() const { return plan.attention.index == 0; }
};

}  // namespace sluice::engine
