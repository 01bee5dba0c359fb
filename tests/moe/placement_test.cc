#include "moe/placement.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice {
namespace {

std::vector<LogicalId> experts(std::initializer_list<std::int32_t> list) {
  std::vector<LogicalId> ids;
  for (const std::int32_t e : list) ids.push_back(LogicalId{e});
  return ids;
}

TEST(Placement, ContiguousUneven) {
  const Placement p = Placement::contiguous(7, 3);  // 3, 2, 2
  EXPECT_FALSE(p.even());
  EXPECT_EQ(p.of_rank(0).count, 3);
  EXPECT_EQ(p.of_rank(2).first, 5);
  EXPECT_EQ(p.rank_of(SlotId{2}), 0);
  EXPECT_EQ(p.rank_of(SlotId{3}), 1);
  EXPECT_EQ(p.rank_of(SlotId{6}), 2);
  EXPECT_EQ(p.slot_for(LogicalId{4}, 9), SlotId{4});
  EXPECT_TRUE(Placement::contiguous(8, 4).even());
}

TEST(Placement, IdsThatAreNoExperts) {
  const Placement p = Placement::contiguous(4, 2);
  EXPECT_EQ(p.slot_for(LogicalId{-1}, 0), kNoSlot);
  EXPECT_EQ(p.slot_for(LogicalId{4}, 0), kNoSlot);
}

TEST(Placement, CopiesTakeTurns) {
  const Placement p(experts({0, 2, 1, 2}), {2, 2}, 3);
  EXPECT_EQ(p.slot_for(LogicalId{2}, 0), SlotId{1});
  EXPECT_EQ(p.slot_for(LogicalId{2}, 1), SlotId{3});
  EXPECT_EQ(p.slot_for(LogicalId{2}, 2), SlotId{1});
  EXPECT_EQ(p.slot_for(LogicalId{1}, 5), SlotId{2});
  EXPECT_EQ(p.expert_of(SlotId{1}), LogicalId{2});
}

TEST(Placement, ARankMayHoldNothingIfItIsSaidSo) {
  const Placement p(experts({0, 1}), {1, 0, 1}, 2);
  EXPECT_EQ(p.of_rank(1).count, 0);
  EXPECT_EQ(p.rank_of(SlotId{1}), 2);
}

TEST(Placement, Refusals) {
  EXPECT_THROW(Placement::contiguous(3, 4), Error);
  EXPECT_THROW(Placement(experts({0, 0}), {2}, 2), Error);  // expert 1 has no slot
  EXPECT_THROW(Placement(experts({0, 2}), {2}, 2), Error);  // no such expert
  EXPECT_THROW(Placement(experts({0, 1}), {1}, 2), Error);  // a slot that nobody holds
  EXPECT_THROW(Placement(experts({0, 1}), {3, -1}, 2), Error);
}

}  // namespace
}  // namespace sluice
