#include "engine/queue.h"

#include <algorithm>

namespace sluice::engine {
namespace {

// Of a long queue only the oldest are asked for their prefixes: the answer costs a look at their tokens.
constexpr std::size_t kMostAsked = 128;

bool is_urgent(const Sequence& s) { return s.overtaken >= kMostOvertakes; }

}  // namespace

bool outranks(const Sequence& a, const Sequence& b, SchedulePolicy policy) {
  if (is_urgent(a) != is_urgent(b)) return is_urgent(a);
  const bool by_priority = policy == SchedulePolicy::priority && !is_urgent(a);
  if (by_priority && a.request.priority != b.request.priority) return a.request.priority > b.request.priority;
  return a.id < b.id;
}

void Queue::add(std::unique_ptr<Sequence> sequence) {
  prompt_tokens_ += sequence->prompt_length();
  auto at = list_.end();
  while (at != list_.begin() && (*std::prev(at))->id > sequence->id) --at;
  list_.insert(at, std::move(sequence));
}

std::unique_ptr<Sequence> Queue::remove(RequestId id) {
  const auto it = std::find_if(list_.begin(), list_.end(), [id](const auto& s) { return s->id == id; });
  if (it == list_.end()) return nullptr;
  return take_at(static_cast<std::size_t>(it - list_.begin()));
}

Sequence* Queue::next(const KvPool& pool) const {
  if (list_.empty()) return nullptr;
  const auto best = std::min_element(list_.begin(), list_.end(),
                                     [this](const auto& a, const auto& b) { return outranks(*a, *b, policy_); });
  if (policy_ != SchedulePolicy::lpm || is_urgent(**best)) return best->get();
  return longest_prefix(pool);
}

Sequence* Queue::longest_prefix(const KvPool& pool) const {
  Sequence* best = nullptr;
  std::int64_t most = -1;
  for (std::size_t i = 0; i < std::min(list_.size(), kMostAsked); ++i) {
    Sequence& s = *list_[i];
    const std::span<const std::int32_t> tokens(s.tokens.data(), static_cast<std::size_t>(s.reusable()));
    const std::int64_t blocks = pool.count_published(s.request.cache_salt, tokens);
    if (blocks <= most) continue;
    most = blocks;
    best = &s;
  }
  return best;
}

std::unique_ptr<Sequence> Queue::take(Sequence* chosen) {
  std::size_t i = 0;
  for (; list_[i].get() != chosen; ++i) ++list_[i]->overtaken;
  return take_at(i);
}

std::unique_ptr<Sequence> Queue::take_at(std::size_t i) {
  std::unique_ptr<Sequence> s = std::move(list_[i]);
  list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(i));
  prompt_tokens_ -= s->prompt_length();
  return s;
}

}  // namespace sluice::engine
