// How attention is cut into tiles and chunks.
#include "cpu/attention_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "cpu/ops_kernels.h"

namespace sluice::cpu {
namespace {

struct Batch {
  std::vector<std::int32_t> positions, starts{0};
  BatchView view;

  void add(std::int32_t first, std::int32_t count) {
    for (std::int32_t i = 0; i < count; ++i) positions.push_back(first + i);
    starts.push_back(static_cast<std::int32_t>(positions.size()));
    view.tokens = static_cast<std::int64_t>(positions.size());
    view.sequences = static_cast<std::int64_t>(starts.size()) - 1;
    view.positions = positions.data();
    view.query_start = starts.data();
  }
};

TEST(AttentionPlan, KeysOfAPosition) {
  EXPECT_EQ(keys_of(0, 0).first, 0);
  EXPECT_EQ(keys_of(0, 0).last, 1);
  EXPECT_EQ(keys_of(99, 0).first, 0);
  EXPECT_EQ(keys_of(99, 1).first, 99);  // itself only
  EXPECT_EQ(keys_of(99, 10).first, 90);
  EXPECT_EQ(keys_of(99, 10).last, 100);
  EXPECT_EQ(keys_of(8, 10).first, 0);
  EXPECT_EQ(keys_of(9, 10).first, 0);
  EXPECT_EQ(keys_of(10, 10).first, 1);
}

TEST(AttentionPlan, ChunksOfATile) {
  Batch batch;
  batch.add(255, 1);
  batch.add(255, 2);  // positions 255 and 256
  batch.add(1000, 1);
  AttentionTile tile;
  TileCursor all(batch.view, 1, 1, 0);
  const std::vector<std::pair<std::int64_t, std::int64_t>> whole{{0, 1}, {0, 2}, {0, 4}};
  for (const auto& [first, last] : whole) {
    ASSERT_TRUE(all.next(tile));
    EXPECT_EQ(tile.first_chunk, first);
    EXPECT_EQ(tile.last_chunk, last);
  }
  EXPECT_FALSE(all.next(tile));
  TileCursor windowed(batch.view, 1, 1, 234);  // from 1000: keys 767 to 1000
  const std::vector<std::pair<std::int64_t, std::int64_t>> part{{0, 1}, {0, 2}, {2, 4}};
  for (const auto& [first, last] : part) {
    ASSERT_TRUE(windowed.next(tile));
    EXPECT_EQ(tile.first_chunk, first);
    EXPECT_EQ(tile.last_chunk, last);
  }
}

TEST(AttentionPlan, EveryTokenAndHeadExactlyOnce) {
  std::mt19937 generator(1);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); };
  for (int i = 0; i < 200; ++i) {
    Batch batch;
    for (int s = pick(0, 5); s > 0; --s) batch.add(pick(0, 600), pick(0, 1) == 0 ? pick(0, 2) : pick(0, 90));
    const int kv_heads = pick(1, 4);
    const int group = pick(1, 70);
    TileCursor cursor(batch.view, kv_heads * group, kv_heads, pick(0, 1) * pick(1, 300));
    EXPECT_LE(cursor.most_rows(), kTileRows);
    std::map<std::pair<std::int64_t, std::int32_t>, int> seen;
    AttentionTile tile;
    while (cursor.next(tile)) {
      ASSERT_GE(tile.rows(), 1);
      ASSERT_LE(tile.rows(), cursor.most_rows());
      ASSERT_GE(tile.first_token, batch.starts[static_cast<std::size_t>(tile.sequence)]);
      ASSERT_LE(tile.first_token + tile.tokens, batch.starts[static_cast<std::size_t>(tile.sequence) + 1]);
      for (std::int32_t r = 0; r < tile.rows(); ++r) {
        const std::int32_t head = tile.first_head + r % tile.heads;
        ASSERT_EQ(head / group, tile.kv_head);
        ++seen[{tile.first_token + r / tile.heads, head}];
      }
    }
    ASSERT_EQ(seen.size(), batch.positions.size() * static_cast<std::size_t>(kv_heads * group));
    for (const auto& [key, times] : seen) ASSERT_EQ(times, 1) << key.first << " " << key.second;
  }
}

}  // namespace
}  // namespace sluice::cpu
