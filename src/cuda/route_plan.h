// Sizes of the routing kernel (route.h), chosen on the host from (T, k, E) and the layer only, never from ids, so that
// a captured graph stays valid for any routing; and how an expert's rows are cut into token tiles. Pure functions,
// shared by the host, the kernel and tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/workspace.h"
#include "cuda/sm90/launch.h"

namespace sluice::cuda {

inline constexpr std::int32_t kRouteExpertUnit = 128;  // experts that a warp lays out at once
inline constexpr std::int32_t kRouteLocalRows = 2048;  // routes whose rows a block keeps in shared memory

struct RoutePlan {
  std::int64_t tokens = 0;       // T
  std::int32_t top_k = 1;        // k
  std::int32_t experts = 0;      // E_local
  std::int32_t token_tile = 16;  // sm90::Plan::token_tile
  std::int32_t tile_unit = 8;    // sm90::token_tile_unit()
  std::int32_t threads = 512;    // of a block, of the kernel for a few routes those that write rows
  std::int32_t blocks = 1;
  std::int64_t block_tokens = 0;  // whole tokens of each block but the last; 0 = an equal share of all K blocks
  bool few = false;               // one launch in which every warp sorts all routes in its registers
  bool one_pass = true;           // one launch in which every block counts all routes
  bool tables_apart = false;      // block 0 makes the tables and has no rows

  constexpr std::int64_t routes() const { return tokens * top_k; }
  constexpr std::int32_t padded_experts() const {
    return (experts + kRouteExpertUnit - 1) / kRouteExpertUnit * kRouteExpertUnit;
  }
  // Three numbers of each expert; rows of the block's own routes.
  constexpr std::int64_t shared_bytes() const { return (3 * padded_experts() + kRouteLocalRows) * 4; }
  constexpr std::size_t scratch_bytes() const {  // counts of (block, expert)
    return one_pass ? 0 : static_cast<std::size_t>(experts) * blocks * 4;
  }
};

inline constexpr std::int32_t kRouteMostThreads = 1024;
inline constexpr std::int64_t kRouteSharedBytes = 200 * 1024;
inline constexpr std::int32_t kRouteMostExperts =
    static_cast<std::int32_t>((kRouteSharedBytes / 4 - kRouteLocalRows) / 3 / kRouteExpertUnit * kRouteExpertUnit);
// Counting this many routes in every block costs less than a launch that shares the counting out.
inline constexpr std::int64_t kRouteOnePassRoutes = 65536;
inline constexpr std::int64_t kRouteColumnTokens = 1024;  // from here on image and input do not fit in L2 together
inline constexpr std::int64_t kRouteUnitsPerBlock = 16;   // K blocks of a row
inline constexpr std::int64_t kRouteCounts = 1 << 16;     // of (block, expert), which every block adds up
inline constexpr std::int64_t kRouteFewRoutes = 32;       // a lane each
inline constexpr std::int32_t kRouteFewThreads = 128;

// More threads than this only get in each other's way.
constexpr std::int32_t route_threads(std::int64_t routes) {
  return routes <= 512 ? 256 : routes <= 2048 ? 512 : kRouteMostThreads;
}

// `whole_rows`: the input needs a scale of each row from all of it (fp8-tensor without a static one), or is quantised
// already; then not by the kernel for a few routes.
constexpr RoutePlan route_plan(std::int64_t tokens, std::int32_t top_k, std::int32_t experts, std::int32_t k_blocks,
                               std::int32_t token_tile, std::int32_t tile_unit, std::int32_t processors,
                               bool whole_rows) {
  RoutePlan p;
  p.tokens = tokens;
  p.top_k = top_k;
  p.experts = experts;
  p.token_tile = token_tile;
  p.tile_unit = tile_unit;
  p.one_pass = p.routes() <= kRouteOnePassRoutes;
  p.threads = route_threads(p.routes());
  const std::int64_t units = tokens * k_blocks;
  if (p.routes() <= kRouteFewRoutes && !whole_rows) {
    p.few = true;
    p.threads = kRouteFewThreads;
    p.blocks = static_cast<std::int32_t>(std::clamp<std::int64_t>(units * 32 / kRouteFewThreads, 1, processors));
    return p;
  }
  // Blocks on more of the multiprocessors would keep the GEMM kernel from starting while rows are written. Those that
  // share a token need its rows in shared memory.
  const std::int64_t rows =
      std::clamp<std::int64_t>((units + kRouteUnitsPerBlock - 1) / kRouteUnitsPerBlock, 1, std::max(processors / 2, 1));
  if (p.one_pass && tokens < kRouteColumnTokens && p.routes() / rows + 4 * top_k <= kRouteLocalRows) {
    p.tables_apart = true;
    p.blocks = static_cast<std::int32_t>(rows + 1);
    return p;
  }
  const std::int64_t counted = p.one_pass ? processors : std::max<std::int64_t>(kRouteCounts / experts, 16);
  p.blocks =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(tokens, 1, std::min<std::int64_t>(counted, processors)));
  p.block_tokens = (tokens + p.blocks - 1) / p.blocks;
  return p;
}

// How many token tiles an expert with `rows` rows has.
constexpr std::int32_t tiles_of_expert(std::int32_t rows, std::int32_t token_tile) {
  if (rows <= token_tile) return rows > 0 ? 1 : 0;  // no division
  return (rows + token_tile - 1) / token_tile;
}

// Tile i of an expert whose first padded row is `row` and whose first tile is tile `first` of the list.
constexpr sm90::TokenTile token_tile_of(std::int32_t expert, std::int32_t rows, std::int32_t row, std::int32_t first,
                                        std::int32_t i, std::int32_t token_tile, std::int32_t tile_unit) {
  const std::int32_t each = sm90::token_tile_rows(rows, token_tile, tile_unit);
  sm90::TokenTile t{};
  t.expert = expert;
  t.first_row = row + i * each;
  t.rows = std::min(each, rows - i * each);
  t.first = first;
  t.count = tiles_of_expert(rows, token_tile);
  t.each = each;
  t.last_rows = rows - (t.count - 1) * each;
  return t;
}

}  // namespace sluice::cuda
