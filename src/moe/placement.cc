#include "moe/placement.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "core/error.h"
#include "moe/parallel.h"

namespace sluice {

Placement Placement::contiguous(std::int32_t experts, std::int32_t ranks) {
  if (ranks > experts) {
    fail(ErrorCode::unsupported,
         std::to_string(ranks) + " expert-parallel ranks for " + std::to_string(experts) +
             " experts: some would hold none",
         "at most " + std::to_string(experts), "choose a smaller --ep");
  }
  std::vector<LogicalId> expert_of;
  for (std::int32_t e = 0; e < experts; ++e) expert_of.push_back(LogicalId{e});
  std::vector<std::int32_t> counts;
  for (std::int32_t r = 0; r < ranks; ++r) {
    counts.push_back(static_cast<std::int32_t>(share_of(experts, 1, {r, ranks}).count()));
  }
  return {std::move(expert_of), std::move(counts), experts};
}

Placement::Placement(std::vector<LogicalId> expert_of, std::vector<std::int32_t> counts, std::int32_t experts)
    : expert_of_(std::move(expert_of)), experts_(experts) {
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (total != slots() || std::any_of(counts.begin(), counts.end(), [](std::int32_t n) { return n < 0; })) {
    fail(ErrorCode::usage, "placement: ranks hold " + std::to_string(total) + " slots",
         std::to_string(slots()) + ", none of them negative");
  }
  std::int32_t first = 0;
  for (const std::int32_t n : counts) {
    ranges_.push_back({first, n});
    first += n;
  }
  first_of_.assign(static_cast<std::size_t>(experts) + 1, 0);
  for (const LogicalId e : expert_of_) {
    if (raw(e) < 0 || raw(e) >= experts) {
      fail(ErrorCode::usage, "placement: a slot holds expert " + std::to_string(raw(e)),
           "0 to " + std::to_string(experts - 1));
    }
    ++first_of_[static_cast<std::size_t>(raw(e)) + 1];
  }
  for (std::int32_t e = 0; e < experts; ++e) {
    if (first_of_[static_cast<std::size_t>(e) + 1] == 0) {
      fail(ErrorCode::usage, "placement: expert " + std::to_string(e) + " has no slot", "at least one for each expert");
    }
  }
  std::partial_sum(first_of_.begin(), first_of_.end(), first_of_.begin());
  std::vector<std::int32_t> next(first_of_.begin(), first_of_.end() - 1);
  slots_of_.resize(expert_of_.size());
  for (std::int32_t s = 0; s < slots(); ++s) {
    const auto e = static_cast<std::size_t>(raw(expert_of_[static_cast<std::size_t>(s)]));
    slots_of_[static_cast<std::size_t>(next[e]++)] = SlotId{s};
  }
}

bool Placement::even() const {
  return std::all_of(ranges_.begin(), ranges_.end(), [&](SlotRange r) { return r.count == ranges_.front().count; });
}

std::int32_t Placement::rank_of(SlotId slot) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), raw(slot),
                                      [](std::int32_t s, const SlotRange& r) { return s < r.first + r.count; });
  return static_cast<std::int32_t>(after - ranges_.begin());
}

SlotId Placement::slot_for(LogicalId expert, std::int64_t token) const {
  if (raw(expert) < 0 || raw(expert) >= experts_) return kNoSlot;
  const std::int32_t first = first_of_[static_cast<std::size_t>(raw(expert))];
  const std::int32_t copies = first_of_[static_cast<std::size_t>(raw(expert)) + 1] - first;
  return slots_of_[static_cast<std::size_t>(first + token % copies)];
}

}  // namespace sluice
