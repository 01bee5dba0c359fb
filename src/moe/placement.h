// Where experts live: logical expert > physical slots, and which slots a rank holds (architecture 4.3).
//
// Made at load time, constant while a layer runs, shared by loading (which weights go into a slot) and dispatch (which
// slot a route goes to). Contiguous by default; a table with copies of busy experts needs no other code.
#pragma once

#include <cstdint>
#include <vector>

#include "moe/ids.h"

namespace sluice {

class Placement {
 public:
  // Expert e in slot e; ranks hold consecutive slots, as even as E / ranks allows, the first ones one more. Throws
  // Error(unsupported) when there are more ranks than experts.
  static Placement contiguous(std::int32_t experts, std::int32_t ranks);

  // `expert_of[slot]`; rank r holds `counts[r]` consecutive slots. Every expert needs a slot; Error(usage) otherwise.
  Placement(std::vector<LogicalId> expert_of, std::vector<std::int32_t> counts, std::int32_t experts);

  std::int32_t experts() const { return experts_; }
  std::int32_t slots() const { return static_cast<std::int32_t>(expert_of_.size()); }
  std::int32_t ranks() const { return static_cast<std::int32_t>(ranges_.size()); }
  bool even() const;  // every rank holds equally many

  SlotRange of_rank(std::int32_t rank) const { return ranges_[static_cast<std::size_t>(rank)]; }
  std::int32_t rank_of(SlotId slot) const;
  LogicalId expert_of(SlotId slot) const { return expert_of_[static_cast<std::size_t>(raw(slot))]; }

  // The slot that serves `token`'s route to an expert; copies take turns by token index. kNoSlot for ids that are no
  // expert's.
  SlotId slot_for(LogicalId expert, std::int64_t token) const;

 private:
  std::vector<LogicalId> expert_of_;    // [slots]
  std::vector<SlotRange> ranges_;       // [ranks]
  std::vector<SlotId> slots_of_;        // all slots, expert by expert
  std::vector<std::int32_t> first_of_;  // [experts + 1] into slots_of_
  std::int32_t experts_ = 0;
};

}  // namespace sluice
