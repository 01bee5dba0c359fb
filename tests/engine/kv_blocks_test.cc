// The block allocator: hand-made cases, and random calls against a plain count of holders.
#include "engine/kv_blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "core/error.h"

namespace sluice::engine {
namespace {

TEST(KvBlocks, HandsOutEveryBlockOnce) {
  BlockAllocator blocks(3);
  std::set<std::int32_t> seen;
  for (int i = 0; i < 3; ++i) seen.insert(blocks.allocate());
  EXPECT_EQ(seen, (std::set<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(blocks.available(), 0);
  EXPECT_EQ(blocks.allocate(), -1);
  EXPECT_EQ(blocks.used(), 3);
}

TEST(KvBlocks, TheLastReleasedComesFirst) {
  BlockAllocator blocks(4);
  const std::int32_t a = blocks.allocate();
  const std::int32_t b = blocks.allocate();
  blocks.release(a);
  blocks.release(b);
  EXPECT_EQ(blocks.allocate(), b);
  EXPECT_EQ(blocks.allocate(), a);
}

TEST(KvBlocks, SharedBlockIsFreeWhenTheLastHolderLetsGo) {
  BlockAllocator blocks(1);
  const std::int32_t a = blocks.allocate();
  blocks.retain(a);
  blocks.release(a);
  EXPECT_EQ(blocks.available(), 0);
  EXPECT_EQ(blocks.holders(a), 1);
  blocks.release(a);
  EXPECT_EQ(blocks.available(), 1);
}

TEST(KvBlocks, RefusesBlocksThatNobodyHolds) {
  BlockAllocator blocks(2);
  const std::int32_t a = blocks.allocate();
  blocks.release(a);
  EXPECT_THROW(blocks.release(a), Error);
  EXPECT_THROW(blocks.retain(a), Error);
  EXPECT_THROW(blocks.release(-1), Error);
  EXPECT_THROW(blocks.release(2), Error);
  EXPECT_EQ(blocks.available(), 2);
}

// Any sequence of calls: the same counts as a map of holders, and no block given to two at once.
TEST(KvBlocks, RandomCallsAgreeWithACountOfHolders) {
  std::mt19937 rng(20240701);
  for (int round = 0; round < 50; ++round) {
    const auto total = static_cast<std::int64_t>(rng() % 20);
    BlockAllocator blocks(total);
    std::map<std::int32_t, int> held;
    for (int call = 0; call < 400; ++call) {
      const auto kind = rng() % 3;
      if (kind == 0) {
        const std::int32_t block = blocks.allocate();
        ASSERT_EQ(block < 0, std::ssize(held) == total);
        if (block < 0) continue;
        ASSERT_TRUE(held.emplace(block, 1).second) << "block " << block << " given twice";
        ASSERT_LT(block, total);
      } else if (!held.empty()) {
        const auto it = std::next(held.begin(), static_cast<std::ptrdiff_t>(rng() % held.size()));
        if (kind == 1) {
          blocks.retain(it->first);
          ++it->second;
        } else {
          blocks.release(it->first);
          if (--it->second == 0) held.erase(it);
        }
      }
      ASSERT_EQ(blocks.used(), std::ssize(held));
      ASSERT_EQ(blocks.used() + blocks.available(), total);
      for (const auto& [block, holders] : held) ASSERT_EQ(blocks.holders(block), holders);
    }
  }
}

}  // namespace
}  // namespace sluice::engine
