// The sorting half of R (route.h) as functions of one block. Deterministic: counts are sums of integers, and the place
// of a route follows from the counts of the routes before it, never from the order in which threads arrive. It runs
// once, from code that no cache holds: what counts is how few instructions and barriers there are.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/route.h"

namespace sluice::cuda {

inline constexpr int kRoutesAhead = 8;  // ids that a thread loads before it uses the first

// The parts of a block's shared memory.
struct SortMemory {
  int2* sums;            // [kRouteSums]
  std::int32_t* before;  // [experts] routes of tokens before the block's own; then the place of the next one
  std::int32_t* rest;    // [experts] the other routes
  std::int32_t* local;   // [kRouteLocalRows] of the block's own routes
};

__device__ inline SortMemory sort_memory(const RouteArgs& a, void* shared) {
  auto* sums = static_cast<int2*>(shared);
  auto* before = reinterpret_cast<std::int32_t*>(sums + kRouteSums);
  return {sums, before, before + a.plan.experts, before + 2 * a.plan.experts};
}

// The routes whose input rows a block writes: first their experts, then their padded rows, -1 where skipped. In shared
// memory where they fit, else in their part of route_row.
struct OwnRoutes {
  std::int32_t begin = 0, end = 0;
  std::int32_t* rows = nullptr;

  __device__ OwnRoutes(const RouteArgs& a, const SortMemory& m, std::int64_t first_token, std::int64_t last_token)
      : begin(static_cast<std::int32_t>(first_token * a.plan.top_k)),
        end(static_cast<std::int32_t>(last_token * a.plan.top_k)),
        rows(end - begin <= kRouteLocalRows ? m.local : a.route_row + begin) {}

  __device__ void keep(std::int32_t route, std::int32_t expert) const {
    if (route >= begin && route < end) rows[route - begin] = expert;
  }
};

// Routes from here on belong to padding.
__device__ inline std::int32_t valid_routes(const RouteArgs& a) {
  const auto routes = static_cast<std::int32_t>(a.plan.routes());
  if (a.valid_tokens == nullptr) return routes;
  const std::int64_t valid = std::int64_t{*a.valid_tokens} * a.plan.top_k;
  return valid < 0 ? 0 : static_cast<std::int32_t>(valid < routes ? valid : routes);
}

// The local expert of an id, -1 where it is skipped.
__device__ inline std::int32_t expert_of(const RouteArgs& a, std::int32_t id) {
  const std::int32_t e = id - a.first_slot;
  return id >= 0 && e >= 0 && e < a.plan.experts ? e : -1;
}

// Ids of the routes [begin, end) that a thread of the block looks at next: its first one and then every `step`th.
struct IdBatch {
  std::int32_t ids[kRoutesAhead];

  __device__ void load(const RouteArgs& a, std::int32_t first, std::int32_t end) {
    const std::int32_t step = blockDim.x;
#pragma unroll
    for (int i = 0; i < kRoutesAhead; ++i) {
      if (first + i * step < end) ids[i] = a.ids[first + i * step];
    }
  }
};

// visit(route, expert or -1) for routes [begin, end); all threads of the block. `batch` holds the first ids.
template <class Visit>
__device__ inline void for_routes(const RouteArgs& a, std::int32_t begin, std::int32_t end, IdBatch& batch,
                                  Visit visit) {
  const std::int32_t valid = valid_routes(a), step = blockDim.x;
  for (std::int32_t first = begin + threadIdx.x; first < end; first += kRoutesAhead * step) {
    if (first >= begin + step) batch.load(a, first, end);
#pragma unroll
    for (int i = 0; i < kRoutesAhead; ++i) {
      const std::int32_t r = first + i * step;
      if (r >= end) break;
      visit(r, r < valid ? expert_of(a, batch.ids[i]) : -1);
    }
  }
}

__device__ inline void clear_counts(const RouteArgs& a, const SortMemory& m) {
  for (std::int32_t i = threadIdx.x; i < 2 * a.plan.experts; i += blockDim.x) m.before[i] = 0;
  __syncthreads();
}

// Exclusive sums over the block of a pair of values a thread, and their totals. `sums` may be used again after a
// barrier.
__device__ inline int2 block_exclusive_sums(int2 value, int2* sums, int2* total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const auto add_lanes = [lane](int2 v) {
#pragma unroll 1
    for (int d = 1; d < 32; d *= 2) {
      const int x = __shfl_up_sync(0xFFFFFFFFu, v.x, d), y = __shfl_up_sync(0xFFFFFFFFu, v.y, d);
      if (lane >= d) v = {v.x + x, v.y + y};
    }
    return v;
  };
  const int2 inclusive = add_lanes(value);
  if (lane == 31) sums[warp] = inclusive;
  __syncthreads();
  const int2 of_warps = add_lanes(lane < warps ? sums[lane] : int2{0, 0});
  *total = {__shfl_sync(0xFFFFFFFFu, of_warps.x, 31), __shfl_sync(0xFFFFFFFFu, of_warps.y, 31)};
  const int before = warp > 0 ? warp - 1 : 0;
  const int2 base = {__shfl_sync(0xFFFFFFFFu, of_warps.x, before), __shfl_sync(0xFFFFFFFFu, of_warps.y, before)};
  return {inclusive.x - value.x + (warp > 0 ? base.x : 0), inclusive.y - value.y + (warp > 0 ? base.y : 0)};
}

// All token tiles of an expert, given its first one.
__device__ inline void write_tiles(const RouteArgs& a, sm90::TokenTile tile) {
  const sm90::TokenTile first = tile;
#pragma unroll 1
  for (std::int32_t i = 0; i < first.count; ++i) {
    const sm90::TileRows rows = sm90::rows_of_tile(first, first.first, first.first + i);
    tile.first_row = rows.first_row;
    tile.rows = rows.rows;
    a.tiles[first.first + i] = tile;
  }
}

// Goes through the experts, a thread each: before[e] becomes the padded row of the block's first route of e; writes the
// tables when `tables`. Returns how many token tiles there are.
__device__ inline std::int32_t lay_out_experts(const RouteArgs& a, const SortMemory& m, bool tables) {
  int2 start = {0, 0};  // padded rows and token tiles before
  for (std::int32_t first = 0; first < a.plan.experts; first += blockDim.x) {
    const std::int32_t e = first + threadIdx.x;
    const bool inside = e < a.plan.experts;
    const std::int32_t own = inside ? m.before[e] : 0, rows = own + (inside ? m.rest[e] : 0);
    const std::int32_t tiles = tiles_of_expert(rows, a.plan.token_tile);
    const std::int32_t padded = (rows + sm90::kRowGroup - 1) / sm90::kRowGroup * sm90::kRowGroup;
    int2 total;
    const int2 sum = block_exclusive_sums({padded, tiles}, m.sums, &total);
    const std::int32_t row = start.x + sum.x, tile = start.y + sum.y;
    if (inside) m.before[e] = row + own;
    if (tables && tiles > 0) write_tiles(a, token_tile_of(e, rows, row, tile, 0, a.plan.token_tile));
    start = {start.x + total.x, start.y + total.y};
    __syncthreads();
  }
  return start.y;
}

// The rows of the block's own routes, by its first warp.
__device__ inline void place_routes(const RouteArgs& a, const SortMemory& m, const OwnRoutes& own) {
  const std::int32_t lane = threadIdx.x, count = own.end - own.begin;
  for (std::int32_t first = 0; threadIdx.x < 32 && first < count; first += 32) {
    const std::int32_t i = first + lane, e = i < count ? own.rows[i] : -1;
    const unsigned same = __match_any_sync(0xFFFFFFFFu, e);
    const int rank = __popc(same & ((1u << lane) - 1u));
    const std::int32_t row = e >= 0 ? m.before[e] + rank : -1;
    __syncwarp();
    if (e >= 0 && rank == 0) m.before[e] += __popc(same);
    __syncwarp();
    if (i >= count) continue;
    own.rows[i] = row;
    a.route_row[own.begin + i] = row;
    if (a.row_token != nullptr && row >= 0) a.row_token[row] = own.begin + i;
  }
  __syncthreads();
}

// The counts of all blocks: those of blocks before this one, and the rest. Integer sums in shared memory, so their
// order does not matter.
__device__ inline void add_up_blocks(const RouteArgs& a, const SortMemory& m) {
  const auto threads = static_cast<std::int32_t>(blockDim.x), experts = a.plan.experts;
  const std::int32_t parts = experts < threads ? threads / experts : 1;
  const std::int32_t part = parts == 1 ? 0 : static_cast<std::int32_t>(threadIdx.x) / experts;
  const std::int32_t first = static_cast<std::int32_t>(threadIdx.x) - part * experts;
  for (std::int32_t e = first; e < experts && part < parts; e += parts == 1 ? threads : experts) {
    std::int32_t sums[2] = {0, 0};
#pragma unroll 8
    for (std::int32_t b = part; b < a.plan.blocks; b += parts) {
      const std::int32_t count = a.scratch[static_cast<std::int64_t>(b) * experts + e];
      const bool earlier = b < static_cast<std::int32_t>(blockIdx.x);
      sums[0] += earlier ? count : 0;
      sums[1] += earlier ? 0 : count;
    }
    atomicAdd(m.before + e, sums[0]);
    atomicAdd(m.rest + e, sums[1]);
  }
  __syncthreads();
}

}  // namespace sluice::cuda
