// Sizes of the routing kernel and the cutting of an expert's rows: everything of it that needs no GPU.
#include "cuda/route_plan.h"

#include <gtest/gtest.h>

namespace sluice::cuda {
namespace {

TEST(TokenTiles, ByHand) {
  // 20 rows in tiles of at most 16: two, of 16 and 4 or evenly of 10, rounded up to whole groups of 8: 16 and 4.
  EXPECT_EQ(tiles_of_expert(20, 16), 2);
  const sm90::TokenTile first = token_tile_of(3, 20, 40, 7, 0, 16, 8), second = token_tile_of(3, 20, 40, 7, 1, 16, 8);
  EXPECT_EQ(first.expert, 3);
  EXPECT_EQ(first.first_row, 40);
  EXPECT_EQ(first.rows, 16);
  EXPECT_EQ(first.first, 7);
  EXPECT_EQ(first.count, 2);
  EXPECT_EQ(second.first_row, 56);
  EXPECT_EQ(second.rows, 4);
  EXPECT_EQ(tiles_of_expert(0, 16), 0);
  // 137 rows in tiles of at most 128: evenly 68.5, in whole groups 72 and the rest; by halves of 64 rows 128 and 9.
  EXPECT_EQ(token_tile_of(0, 137, 0, 0, 0, 128, 8).rows, 72);
  EXPECT_EQ(token_tile_of(0, 137, 0, 0, 1, 128, 8).rows, 65);
  EXPECT_EQ(token_tile_of(0, 137, 0, 0, 0, 128, 64).rows, 128);
  EXPECT_EQ(token_tile_of(0, 137, 0, 0, 1, 128, 64).rows, 9);
}

// Rows at most, and what all but the last are a multiple of.
constexpr std::pair<std::int32_t, std::int32_t> kTiles[] = {{8, 8}, {16, 8}, {32, 8}, {64, 8}, {128, 8}, {128, 64}};

TEST(TokenTiles, CoverEveryRowOnce) {
  for (const auto& [tile, unit] : kTiles) {
    for (std::int32_t rows = 1; rows < 700; ++rows) {
      std::int32_t next = 0;
      for (std::int32_t i = 0; i < tiles_of_expert(rows, tile); ++i) {
        const sm90::TokenTile t = token_tile_of(0, rows, 0, 0, i, tile, unit);
        ASSERT_EQ(t.first_row, next) << rows << " in tiles of " << tile;
        ASSERT_GE(t.rows, 1) << rows << " in tiles of " << tile;
        ASSERT_LE(t.rows, tile) << rows << " in tiles of " << tile;
        ASSERT_EQ(t.first_row % 8, 0);
        next += t.rows;
      }
      ASSERT_EQ(next, rows);
    }
  }
}

TEST(TokenTiles, EachTellsWhereTheOthersAre) {
  for (const auto& [tile, unit] : kTiles) {
    for (std::int32_t rows = 1; rows < 700; rows += 3) {
      const std::int32_t tiles = tiles_of_expert(rows, tile);
      for (std::int32_t own = 0; own < tiles; ++own) {
        const sm90::TokenTile t = token_tile_of(0, rows, 64, 5, own, tile, unit);
        for (std::int32_t i = 0; i < tiles; ++i) {
          const sm90::TokenTile other = token_tile_of(0, rows, 64, 5, i, tile, unit);
          const sm90::TileRows told = sm90::rows_of_tile(t, 5 + own, 5 + i);
          ASSERT_EQ(told.first_row, other.first_row) << rows << " in tiles of " << tile << ", " << own << " of " << i;
          ASSERT_EQ(told.rows, other.rows) << rows << " in tiles of " << tile << ", " << own << " of " << i;
        }
      }
    }
  }
}

// Whatever the sizes, a block's shared memory fits, every token has a block, and the tables of the host are large
// enough for the worst routing: one row for as many experts as possible, the rest with one expert.
TEST(RoutePlan, HoldsForAllSizes) {
  for (const std::int64_t tokens : {1, 2, 100, 1024, 1025, 8192, 65536, 300000}) {
    for (const std::int32_t k : {1, 8, 32}) {
      for (const std::int32_t experts : {1, 8, 256, 5000, kRouteMostExperts}) {
        const std::int32_t processors = experts % 2 == 0 ? 132 : 7;
        const RoutePlan p = route_plan(tokens, k, experts, 32, 16, 8, processors, tokens % 2 == 0);
        ASSERT_LE(p.shared_bytes(), kRouteSharedBytes);
        ASSERT_GE(p.blocks, 1);
        ASSERT_LE(p.threads, kRouteMostThreads);
        ASSERT_TRUE(p.one_pass || p.block_tokens > 0);
        const std::int64_t routes = tokens * k;
        ASSERT_TRUE(p.few || p.tables_apart || p.block_tokens * p.blocks >= tokens);
        if (p.tables_apart) {
          ASSERT_GE(p.blocks, 2);
          ASSERT_LE(routes / (p.blocks - 1) + 4 * k, kRouteLocalRows);
          // Blocks share 8 pieces a token (32 K blocks) and begin and end anywhere in a token.
          const std::int64_t pieces = sm90::ceil_div(tokens * 8, p.blocks - 1);
          ASSERT_LE(sm90::ceil_div(pieces + 7, 8) * k, kRouteLocalRows);
        }
        const std::int64_t singles = std::min<std::int64_t>(experts - 1, routes - 1), rest = routes - singles;
        ASSERT_LE(singles * 8 + sm90::round_up(rest, 8), sm90::max_padded_rows(routes, experts));
        ASSERT_LE(singles + sm90::ceil_div(rest, 16), sm90::max_token_tiles(routes, experts, 16));
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cuda
