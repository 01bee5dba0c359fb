// The schedulers of a run's dp groups: one for each, with KV blocks and prefixes of its own. One rank has one group.
//
// Owned by Engine, one thread. A request stays in the group that it was given to.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/scheduler.h"
#include "engine/stats.h"

namespace sluice::engine {

class Groups {
 public:
  Groups(const SchedulerLimits& each, std::int32_t count);

  // To the group that is through with its prompt soonest: what it has in work, and what of this prompt it would have to
  // compute. Ties to the first.
  void add(std::unique_ptr<Sequence> sequence);
  bool remove(RequestId id);  // false when no group has it
  void clear_prefix_cache();

  std::size_t count() const { return schedulers_.size(); }
  Scheduler& operator[](std::size_t group) { return *schedulers_[group]; }

  // Of all groups together.
  bool idle() const { return running_count() == 0 && waiting_count() == 0; }
  std::int64_t running_count() const { return sum(&Scheduler::running_count); }
  std::int64_t waiting_count() const { return sum(&Scheduler::waiting_count); }
  std::int64_t waiting_tokens() const { return sum(&Scheduler::waiting_tokens); }
  void fill_gauges(EngineStats& stats) const;

  // A request runs in one group only.
  std::int64_t blocks_of_one() const { return schedulers_.front()->blocks().total(); }
  std::int64_t blocks_for(std::int64_t tokens) const { return schedulers_.front()->blocks_for(tokens); }

 private:
  std::int64_t sum(std::int64_t (Scheduler::*quantity)() const) const;

  std::vector<std::unique_ptr<Scheduler>> schedulers_;
};

}  // namespace sluice::engine
