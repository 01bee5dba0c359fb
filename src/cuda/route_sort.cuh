// The sorting half of R (route.h) as functions of one block. Deterministic: counts are sums of integers, and the place
// of a route follows from the counts of the routes before it, never from the order in which threads arrive. It runs
// once, from code that no cache holds: what counts is how few instructions and barriers there are.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/route.h"

namespace sluice::cuda {

inline constexpr int kIdVectors = 2;  // of four ids that a thread loads before it uses the first

// The parts of a block's shared memory; plan.padded_experts() each but the last.
struct SortMemory {
  std::int32_t* before;  // routes of tokens before the block's own; then the padded row of the next one
  std::int32_t* rest;    // the other routes; then all of the expert
  std::int32_t* tile;    // first token tile of the expert
  std::int32_t* local;   // [kRouteLocalRows] of the block's own routes
};

__device__ inline SortMemory sort_memory(const RouteArgs& a, void* shared) {
  auto* before = static_cast<std::int32_t*>(shared);
  const std::int32_t experts = a.plan.padded_experts();
  return {before, before + experts, before + 2 * experts, before + 3 * experts};
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
  const std::uint32_t e = static_cast<std::uint32_t>(id) - static_cast<std::uint32_t>(a.first_slot);
  return e < static_cast<std::uint32_t>(a.plan.experts) ? static_cast<std::int32_t>(e) : -1;
}

// Up to four ids, then -1. Rare, and kept out of the way of the code that runs always.
__device__ inline int4 load_ids_single(const std::int32_t* ids, std::int32_t left) {
  return {ids[0], left > 1 ? ids[1] : -1, left > 2 ? ids[2] : -1, left > 3 ? ids[3] : -1};
}

// The ids that a thread looks at next, of routes [begin, end) of the batch that the block goes through four at a time.
struct IdBatch {
  int4 ids[kIdVectors];

  __device__ static std::int32_t step() { return 4 * static_cast<std::int32_t>(blockDim.x); }

  // first = begin + 4 * threadIdx.x, or further on by kIdVectors steps.
  __device__ void load(const RouteArgs& a, std::int32_t first, std::int32_t end) {
#pragma unroll
    for (int i = 0; i < kIdVectors; ++i) {
      const std::int32_t r = first + i * step();
      if (r >= end) break;
      const std::int32_t* from = a.ids + r;
      const bool vector = r + 4 <= end && reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
      ids[i] = vector ? *reinterpret_cast<const int4*>(from) : load_ids_single(from, end - r);
    }
  }
};

// visit(route, its id and the three after it, -1 behind the end) for routes [begin, end); all threads of the block.
// `batch` holds the first ids.
template <class Visit>
__device__ inline void for_routes(const RouteArgs& a, std::int32_t begin, std::int32_t end, IdBatch& batch,
                                  Visit visit) {
  const std::int32_t step = IdBatch::step();
  for (std::int32_t first = begin + 4 * threadIdx.x; first < end; first += kIdVectors * step) {
    if (first >= begin + step) batch.load(a, first, end);
#pragma unroll
    for (int i = 0; i < kIdVectors; ++i) {
      if (first + i * step >= end) break;
      visit(first + i * step, batch.ids[i]);
    }
  }
}

// Four ids into counts [experts].
__device__ inline void count_ids(const RouteArgs& a, const int4& ids, std::int32_t* counts) {
  for (const std::int32_t id : {ids.x, ids.y, ids.z, ids.w}) {
    const std::int32_t e = expert_of(a, id);
    if (e >= 0) atomicAdd(counts + e, 1);
  }
}

// visit(route, expert or -1) for each of four routes.
template <class Visit>
__device__ inline void for_each_of(const RouteArgs& a, std::int32_t route, const int4& ids, std::int32_t valid,
                                   Visit visit) {
  for (const std::int32_t id : {ids.x, ids.y, ids.z, ids.w}) {
    visit(route, route < valid ? expert_of(a, id) : -1);
    ++route;
  }
}

// Counts all routes of the batch, and keeps the experts of the block's own.
__device__ inline void count_batch(const RouteArgs& a, const SortMemory& m, const OwnRoutes& own, IdBatch& batch) {
  const auto routes = static_cast<std::int32_t>(a.plan.routes());
  const std::int32_t valid = valid_routes(a);
  for_routes(a, 0, routes, batch, [&](std::int32_t r, const int4& ids) {
    if (r + 4 <= valid && (r + 4 <= own.begin || r >= own.end)) {
      count_ids(a, ids, r < own.begin ? m.before : m.rest);
      return;
    }
    for_each_of(a, r, ids, valid, [&](std::int32_t route, std::int32_t e) {
      if (e >= 0) atomicAdd((route < own.begin ? m.before : m.rest) + e, 1);
      own.keep(route, e);
    });
  });
}

__device__ inline void clear_counts(const RouteArgs& a, const SortMemory& m) {
  for (std::int32_t i = threadIdx.x; i < 2 * a.plan.padded_experts(); i += blockDim.x) m.before[i] = 0;
  __syncthreads();
}

// Inclusive sums over the lanes of a warp of a pair of values each.
__device__ inline int2 warp_sums(int2 v) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int x = __shfl_up_sync(0xFFFFFFFFu, v.x, d), y = __shfl_up_sync(0xFFFFFFFFu, v.y, d);
    if (lane >= d) v = {v.x + x, v.y + y};
  }
  return v;
}

// Turns the counts into places, four experts a lane; the first warp. Returns how many token tiles there are.
__device__ inline std::int32_t lay_out_experts(const RouteArgs& a, const SortMemory& m) {
  const std::int32_t shift = 31 - __clz(a.plan.token_tile);  // a power of two
  int2 start = {0, 0};                                       // padded rows and token tiles before
#pragma unroll 1
  for (std::int32_t e = 4 * threadIdx.x; e < a.plan.padded_experts(); e += kRouteExpertUnit) {
    const int4 before = *reinterpret_cast<const int4*>(m.before + e), rest = *reinterpret_cast<const int4*>(m.rest + e);
    const std::int32_t own[4] = {before.x, before.y, before.z, before.w};
    const std::int32_t rows[4] = {before.x + rest.x, before.y + rest.y, before.z + rest.z, before.w + rest.w};
    std::int32_t row[5] = {0}, tile[5] = {0};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      row[i + 1] = row[i] + (rows[i] + sm90::kRowGroup - 1) / sm90::kRowGroup * sm90::kRowGroup;
      tile[i + 1] = tile[i] + ((rows[i] + a.plan.token_tile - 1) >> shift);
    }
    const int2 sums = warp_sums({row[4], tile[4]});
    const int x = start.x + sums.x - row[4], y = start.y + sums.y - tile[4];
    *reinterpret_cast<int4*>(m.before + e) =
        make_int4(x + own[0], x + row[1] + own[1], x + row[2] + own[2], x + row[3] + own[3]);
    *reinterpret_cast<int4*>(m.rest + e) = make_int4(rows[0], rows[1], rows[2], rows[3]);
    *reinterpret_cast<int4*>(m.tile + e) = make_int4(y, y + tile[1], y + tile[2], y + tile[3]);
    start.x += __shfl_sync(0xFFFFFFFFu, sums.x, 31);
    start.y += __shfl_sync(0xFFFFFFFFu, sums.y, 31);
  }
  return start.y;
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

// A thread an expert of block 0, for which no routes are before its own.
__device__ inline void write_tables(const RouteArgs& a, const SortMemory& m) {
  for (std::int32_t e = threadIdx.x; e < a.plan.experts; e += blockDim.x) {
    if (m.rest[e] > 0)
      write_tiles(a, token_tile_of(e, m.rest[e], m.before[e], m.tile[e], 0, a.plan.token_tile, a.plan.tile_unit));
  }
}

// The rows of the block's own routes: 32 to a warp, which take their turns where they need the counts.
__device__ inline void place_routes(const RouteArgs& a, const SortMemory& m, const OwnRoutes& own) {
  const std::int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const std::int32_t count = own.end - own.begin;
#pragma unroll 1
  for (std::int32_t first = 0; first < count; first += blockDim.x) {
    const std::int32_t i = first + threadIdx.x, e = i < count ? own.rows[i] : -1;
    const unsigned same = i - lane < count ? __match_any_sync(0xFFFFFFFFu, e) : 0;
    const int rank = __popc(same & ((1u << lane) - 1u));
    std::int32_t row = -1;
#pragma unroll 1
    for (std::int32_t turn = 0; turn < warps && first + 32 * turn < count; ++turn) {
      if (turn == warp && e >= 0) row = m.before[e] + rank;
      __syncwarp();
      if (turn == warp && e >= 0 && rank == 0) m.before[e] = row + __popc(same);
      __syncthreads();
    }
    if (i >= count) continue;
    own.rows[i] = row;
    a.route_row[own.begin + i] = row;
    if (a.row_token != nullptr && row >= 0) a.row_token[row] = (own.begin + i) / a.plan.top_k;
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
