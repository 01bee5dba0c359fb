// Waiting requests, and which one is next. Owned by the scheduler, one thread.
//
// A request that younger ones have overtaken kMostOvertakes times is urgent: it goes before everything else, oldest
// first, in the queue and when blocks run out, so that no policy can starve it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "engine/kv_pool.h"
#include "engine/options.h"
#include "engine/sequence.h"

namespace sluice::engine {

// Whether `a` is to be kept running rather than `b`: urgent ones, then by priority where that is the policy, then the
// older one.
bool outranks(const Sequence& a, const Sequence& b, SchedulePolicy policy);

class Queue {
 public:
  explicit Queue(SchedulePolicy policy) : policy_(policy) {}

  void add(std::unique_ptr<Sequence> sequence);      // new or preempted, at the place of its age
  std::unique_ptr<Sequence> remove(RequestId id);    // nullptr when it is not here
  Sequence* next(const KvPool& pool) const;          // nullptr when nothing waits
  std::unique_ptr<Sequence> take(Sequence* chosen);  // it overtakes all that are older

  bool empty() const { return list_.empty(); }
  std::int64_t size() const { return std::ssize(list_); }
  std::int64_t prompt_tokens() const { return prompt_tokens_; }

 private:
  std::unique_ptr<Sequence> take_at(std::size_t i);
  Sequence* longest_prefix(const KvPool& pool) const;

  SchedulePolicy policy_;
  std::deque<std::unique_ptr<Sequence>> list_;  // by age, oldest first
  std::int64_t prompt_tokens_ = 0;
};

}  // namespace sluice::engine
