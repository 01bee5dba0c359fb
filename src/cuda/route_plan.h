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

inline constexpr std::int32_t kRouteSums = 33;         // ints
inline constexpr std::int32_t kRouteLocalRows = 2048;  // routes whose rows a block keeps in shared memory

struct RoutePlan {
  std::int64_t tokens = 0;       // T
  std::int32_t top_k = 1;        // k
  std::int32_t experts = 0;      // E_local
  std::int32_t token_tile = 16;  // sm90::Plan::token_tile
  std::int32_t warps = 1;        // that sort, of a block
  std::int32_t threads = 256;    // of a block
  std::int32_t blocks = 1;
  std::int64_t block_tokens = 0;  // several passes: tokens of each block but the last
  bool few = false;               // one launch in which every warp sorts all routes in its registers
  bool one_pass = true;           // one launch in which every block sorts all routes

  constexpr std::int64_t routes() const { return tokens * top_k; }
  // Counts of (warp, expert) lie so that the warps' counts of one expert are in different banks.
  constexpr std::int32_t count_stride() const { return experts | 1; }
  // Those counts; rows and first row of each expert; sums; rows of the block's own routes.
  constexpr std::int64_t shared_bytes() const {
    return (static_cast<std::int64_t>(warps) * count_stride() + 2 * experts + kRouteSums + kRouteLocalRows) * 4;
  }
  constexpr std::size_t scratch_bytes() const {  // counts of (block, expert)
    return one_pass ? 0 : static_cast<std::size_t>(experts) * blocks * 4;
  }
};

inline constexpr std::int32_t kRouteMostWarps = 32;
inline constexpr std::int32_t kRoutePassWarps = 16;  // most of a block in several passes, where two share a processor
inline constexpr std::int64_t kRouteSharedBytes = 200 * 1024;
inline constexpr std::int32_t kRouteMostExperts =
    static_cast<std::int32_t>((kRouteSharedBytes / 4 - kRouteSums - kRouteLocalRows - 1) / 3);
// Sorting this many routes in every block costs less than the launches that it saves.
inline constexpr std::int64_t kRouteOnePassRoutes = 2048;
inline constexpr std::int64_t kRouteUnitsPerBlock = 16;  // K blocks of a row
inline constexpr std::int64_t kRouteCounts = 1 << 16;    // of (block, expert), which every block adds up
inline constexpr std::int64_t kRouteFewRoutes = 32;      // a lane each
inline constexpr std::int32_t kRouteFewThreads = 128;

constexpr std::int32_t fitting_warps(std::int64_t wanted, std::int32_t experts) {
  const std::int64_t fitting =
      (kRouteSharedBytes / 4 - kRouteSums - kRouteLocalRows - 2 * experts) / std::max(experts | 1, 1);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(std::min(wanted, fitting), 1, kRouteMostWarps));
}

// `whole_rows`: the input needs a scale of each row from all of it (fp8-tensor without a static one), or is quantised
// already; then not by the kernel for a few routes.
constexpr RoutePlan route_plan(std::int64_t tokens, std::int32_t top_k, std::int32_t experts, std::int32_t k_blocks,
                               std::int32_t token_tile, std::int32_t processors, bool whole_rows) {
  RoutePlan p;
  p.tokens = tokens;
  p.top_k = top_k;
  p.experts = experts;
  p.token_tile = token_tile;
  p.one_pass = p.routes() <= kRouteOnePassRoutes;
  p.warps = fitting_warps(p.one_pass ? (p.routes() + 31) / 32 : kRoutePassWarps, experts);
  p.threads = std::max(p.warps, 16) * 32;
  const std::int64_t units = tokens * k_blocks;
  const std::int64_t useful = p.one_pass ? (units + kRouteUnitsPerBlock - 1) / kRouteUnitsPerBlock : tokens;
  const std::int64_t most =
      p.one_pass ? processors : std::clamp<std::int64_t>(kRouteCounts / experts, 16, 2 * processors);
  p.blocks = static_cast<std::int32_t>(std::clamp<std::int64_t>(useful, 1, most));
  p.block_tokens = (tokens + p.blocks - 1) / p.blocks;
  if (p.routes() <= kRouteFewRoutes && !whole_rows) {
    p.few = true;
    p.threads = kRouteFewThreads;
    p.blocks = static_cast<std::int32_t>(std::clamp<std::int64_t>(units * 32 / kRouteFewThreads, 1, processors));
  }
  return p;
}

// How many token tiles an expert with `rows` rows has.
constexpr std::int32_t tiles_of_expert(std::int32_t rows, std::int32_t token_tile) {
  return static_cast<std::int32_t>(sm90::ceil_div(rows, token_tile));
}

// Tile i of an expert whose first padded row is `row` and whose first tile is tile `first` of the list.
constexpr sm90::TokenTile token_tile_of(std::int32_t expert, std::int32_t rows, std::int32_t row, std::int32_t first,
                                        std::int32_t i, std::int32_t token_tile) {
  const std::int32_t each = sm90::token_tile_rows(rows, token_tile);
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
