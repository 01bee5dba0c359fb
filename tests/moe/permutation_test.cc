#include "moe/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "moe/random_layer.h"

namespace sluice {
namespace {

struct Sorted {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> routes;
};

Sorted sort_ids(const std::vector<std::int32_t>& raw_ids, std::int32_t top_k, SlotRange slots) {
  std::vector<SlotId> ids;
  for (const std::int32_t id : raw_ids) ids.push_back(SlotId{id});
  const auto tokens = static_cast<std::int64_t>(ids.size()) / top_k;
  // Exactly as many bytes as announced, so that one more throws.
  std::vector<std::byte> memory(permutation_bytes(tokens, top_k, slots.count));
  Workspace workspace(memory.data(), memory.size());
  const Permutation p = permute(ids.data(), tokens, top_k, slots, workspace);
  return {{p.offsets, p.offsets + p.experts + 1}, {p.routes, p.routes + p.total()}};
}

TEST(Permutation, SortsByExpertAndKeepsTheOrderWithin) {
  // token 0: 2 0, token 1: 0 1, token 2: 2 2 (a duplicate)
  const Sorted s = sort_ids({2, 0, 0, 1, 2, 2}, 2, {0, 4});
  EXPECT_EQ(s.offsets, (std::vector<std::int64_t>{0, 2, 3, 6, 6}));
  EXPECT_EQ(s.routes, (std::vector<std::int64_t>{1, 2, 3, 0, 4, 5}));
}

TEST(Permutation, SkipsForeignIds) {
  const Sorted s = sort_ids({-1, 5, 3, 4, 2147483647, -2147483648, 6, 4}, 2, {4, 2});
  EXPECT_EQ(s.offsets, (std::vector<std::int64_t>{0, 2, 3}));
  EXPECT_EQ(s.routes, (std::vector<std::int64_t>{3, 7, 1}));
}

TEST(SlotRange, HoldsItsFirstAndItsLastButNoNeighbour) {
  const SlotRange range{4, 2};
  EXPECT_TRUE(range.contains(SlotId{4}) && range.contains(SlotId{5}));
  EXPECT_FALSE(range.contains(SlotId{3}) || range.contains(SlotId{6}) || range.contains(kNoSlot));
  EXPECT_FALSE((SlotRange{0, 0}.contains(SlotId{0})));
}

TEST(Permutation, NothingToDo) {
  EXPECT_EQ(sort_ids({}, 2, {0, 3}).offsets, (std::vector<std::int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(sort_ids({-1, -1}, 2, {0, 2}).routes, (std::vector<std::int64_t>{}));
  EXPECT_EQ(sort_ids({0, 1}, 2, {0, 0}).offsets, (std::vector<std::int64_t>{0}));
}

TEST(Permutation, AgreesWithAStableSort) {
  testing::Random random(3);
  std::vector<std::int32_t> ids(999);
  for (std::int32_t& id : ids) id = random.below(40) - 4;
  const Sorted s = sort_ids(ids, 3, {2, 30});
  std::vector<std::int64_t> expected;
  for (std::int64_t r = 0; r < 999; ++r) {
    if (ids[r] >= 2 && ids[r] < 32) expected.push_back(r);
  }
  std::stable_sort(expected.begin(), expected.end(), [&](auto a, auto b) { return ids[a] < ids[b]; });
  EXPECT_EQ(s.routes, expected);
  EXPECT_EQ(s.offsets.back(), static_cast<std::int64_t>(expected.size()));
}

}  // namespace
}  // namespace sluice
