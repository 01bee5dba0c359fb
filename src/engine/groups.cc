#include "engine/groups.h"

#include <algorithm>

namespace sluice::engine {

Groups::Groups(const SchedulerLimits& each, std::int32_t count) {
  for (std::int32_t g = 0; g < count; ++g) schedulers_.push_back(std::make_unique<Scheduler>(each));
}

void Groups::add(std::unique_ptr<Sequence> sequence) {
  if (count() == 1) return schedulers_.front()->add(std::move(sequence));
  const auto cost = [&](const auto& s) { return s->load() - s->cached_tokens(*sequence); };
  const auto best = std::min_element(schedulers_.begin(), schedulers_.end(),
                                     [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
  (*best)->add(std::move(sequence));
}

bool Groups::remove(RequestId id) {
  return std::any_of(schedulers_.begin(), schedulers_.end(), [id](const auto& s) { return s->remove(id) != nullptr; });
}

void Groups::clear_prefix_cache() {
  for (const auto& s : schedulers_) s->clear_prefix_cache();
}

std::int64_t Groups::sum(std::int64_t (Scheduler::*quantity)() const) const {
  std::int64_t total = 0;
  for (const auto& s : schedulers_) total += ((*s).*quantity)();
  return total;
}

void Groups::fill_gauges(EngineStats& stats) const {
  stats.preemptions = sum(&Scheduler::preemptions);
  stats.running = running_count();
  stats.waiting = waiting_count();
  stats.waiting_tokens = waiting_tokens();
  stats.prefix_hit_tokens = sum(&Scheduler::prefix_hit_tokens);
  stats.kv_blocks_used = stats.kv_blocks_cached = stats.kv_blocks_total = 0;
  for (const auto& s : schedulers_) {
    stats.kv_blocks_used += s->blocks().used();
    stats.kv_blocks_cached += s->blocks().idle();
    stats.kv_blocks_total += s->blocks().total();
  }
  stats.kv_block_tokens = schedulers_.front()->blocks().block_tokens();
}

}  // namespace sluice::engine
