// The sorting half of R (route.h) as functions of one block. Deterministic: the place of a route follows from the
// counts of the warps before its own and of the lanes before it, never from the order in which threads arrive.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/route.h"

namespace sluice::cuda {

inline constexpr int kRoutesAhead = 4;  // ids that a lane loads before it uses the first

// Routes [begin, end) of the batch that a block sorts, and those of them that count.
struct RouteRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t valid = 0;  // routes from here on belong to padding
};

__device__ inline RouteRange route_range(const RouteArgs& a, std::int64_t begin, std::int64_t end) {
  std::int64_t valid = a.plan.routes();
  if (a.valid_tokens != nullptr) {
    const std::int64_t tokens = *a.valid_tokens;
    valid = tokens < 0 ? 0 : (tokens * a.plan.top_k < valid ? tokens * a.plan.top_k : valid);
  }
  return {begin, end, valid};
}

// The local expert of route r, -1 where it is skipped.
__device__ inline std::int32_t expert_of(const RouteArgs& a, const RouteRange& range, std::int64_t r) {
  if (r >= range.valid || r >= range.end) return -1;
  const std::int32_t id = a.ids[r], e = id - a.first_slot;
  return id >= 0 && e >= 0 && e < a.plan.experts ? e : -1;
}

// Exclusive sum over the block of one value a thread; `sums` holds 33 ints. Every thread of the block calls it.
__device__ inline std::int32_t block_exclusive_sum(std::int32_t value, std::int32_t* sums, std::int32_t* total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  std::int32_t inclusive = value;
  for (int d = 1; d < 32; d *= 2) {
    const std::int32_t other = __shfl_up_sync(0xFFFFFFFFu, inclusive, d);
    if (lane >= d) inclusive += other;
  }
  __syncthreads();
  if (lane == 31) sums[warp] = inclusive;
  __syncthreads();
  if (warp == 0) {
    std::int32_t sum = lane < warps ? sums[lane] : 0;
    for (int d = 1; d < 32; d *= 2) {
      const std::int32_t other = __shfl_up_sync(0xFFFFFFFFu, sum, d);
      if (lane >= d) sum += other;
    }
    sums[lane] = sum;
  }
  __syncthreads();
  *total = sums[31];
  return inclusive - value + (warp > 0 ? sums[warp - 1] : 0);
}

// Visits the routes of this warp in ascending order, 32 at a time: visit(route, inside, expert, rank, count) in each
// lane, where rank is the number of routes of the same expert before it among the 32 and count their number.
template <class Visit>
__device__ inline void for_warp_routes(const RouteArgs& a, const RouteRange& range, Visit visit) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (warp >= a.plan.warps) return;
  const std::int64_t count = range.end - range.begin;
  const std::int64_t each = ((count + a.plan.warps - 1) / a.plan.warps + 31) / 32 * 32;
  const std::int64_t first = range.begin + each * warp;
  const std::int64_t last = first + each < range.end ? first + each : range.end;
  for (std::int64_t base = first; base < last; base += 32 * kRoutesAhead) {
    std::int32_t experts[kRoutesAhead];
#pragma unroll
    for (int i = 0; i < kRoutesAhead; ++i) {
      const std::int64_t r = base + 32 * i + lane;
      experts[i] = r < last ? expert_of(a, range, r) : -1;
    }
#pragma unroll
    for (int i = 0; i < kRoutesAhead; ++i) {
      if (base + 32 * i >= last) break;
      const std::int64_t r = base + 32 * i + lane;
      const unsigned same = __match_any_sync(0xFFFFFFFFu, experts[i]);
      visit(r, r < last, experts[i], __popc(same & ((1u << lane) - 1u)), __popc(same));
    }
  }
}

// counts [warps, experts] of the routes of a range.
__device__ inline void count_routes(const RouteArgs& a, const RouteRange& range, std::int32_t* counts) {
  for (std::int32_t i = threadIdx.x; i < a.plan.warps * a.plan.count_stride(); i += blockDim.x) counts[i] = 0;
  __syncthreads();
  std::int32_t* mine = counts + static_cast<std::int64_t>(threadIdx.x / 32) * a.plan.count_stride();
  for_warp_routes(a, range, [&](std::int64_t, bool, std::int32_t e, int rank, int count) {
    if (e >= 0 && rank == 0) mine[e] += count;
    __syncwarp();
  });
  __syncthreads();
}

// Turns the counts of each expert into those of the warps before; rows [experts] = the sum. With few warps a thread an
// expert, with many a warp an expert and a lane a warp that counted.
__device__ inline void add_up_warps(const RouteArgs& a, std::int32_t* counts, std::int32_t* rows) {
  constexpr std::int32_t kFewWarps = 4;
  if (a.plan.warps <= kFewWarps) {
    for (std::int32_t e = threadIdx.x; e < a.plan.experts; e += blockDim.x) {
      std::int32_t sum = 0;
      for (std::int32_t w = 0; w < a.plan.warps; ++w) {
        std::int32_t& at = counts[w * a.plan.count_stride() + e];
        const std::int32_t count = at;
        at = sum;
        sum += count;
      }
      rows[e] = sum;
    }
    __syncthreads();
    return;
  }
  const int lane = threadIdx.x % 32;
  for (std::int32_t e = threadIdx.x / 32; e < a.plan.experts; e += blockDim.x / 32) {
    const bool counted = lane < a.plan.warps;
    const std::int32_t at = lane * a.plan.count_stride() + e, count = counted ? counts[at] : 0;
    std::int32_t inclusive = count;
    for (int d = 1; d < 32; d *= 2) {
      const std::int32_t other = __shfl_up_sync(0xFFFFFFFFu, inclusive, d);
      if (lane >= d) inclusive += other;
    }
    if (counted) counts[at] = inclusive - count;
    if (lane == 31) rows[e] = inclusive;
  }
  __syncthreads();
}

// write(route, padded row or -1) for the routes of a range. counts [warps, experts]: routes of the warps before;
// first_rows [experts]: the padded row of the range's first route.
template <class Write>
__device__ inline void place_routes(const RouteArgs& a, const RouteRange& range, std::int32_t* counts,
                                    const std::int32_t* first_rows, Write write) {
  std::int32_t* mine = counts + static_cast<std::int64_t>(threadIdx.x / 32) * a.plan.count_stride();
  for_warp_routes(a, range, [&](std::int64_t r, bool inside, std::int32_t e, int rank, int count) {
    const std::int32_t row = e >= 0 ? first_rows[e] + mine[e] + rank : -1;
    __syncwarp();
    if (e >= 0 && rank == 0) mine[e] += count;
    __syncwarp();
    if (inside) write(r, row);
  });
  __syncthreads();
}

// Goes through the experts, a thread each: first_rows[e] = the padded row of the expert's first route, given the rows
// of each expert; writes the tables when `tables`. The two arrays may be one.
__device__ inline void lay_out_experts(const RouteArgs& a, std::int32_t* sums, bool tables, const std::int32_t* rows_of,
                                       std::int32_t* first_rows) {
  std::int32_t padded_before = 0, tiles_before = 0;
  for (std::int32_t first = 0; first < a.plan.experts; first += blockDim.x) {
    const std::int32_t e = first + threadIdx.x;
    const bool inside = e < a.plan.experts;
    const std::int32_t rows = inside ? rows_of[e] : 0, tiles = tiles_of_expert(rows, a.plan.token_tile);
    std::int32_t padded_total = 0, tile_total = 0;
    const std::int32_t padded = (rows + sm90::kRowGroup - 1) / sm90::kRowGroup * sm90::kRowGroup;
    const std::int32_t row = padded_before + block_exclusive_sum(padded, sums, &padded_total);
    if (inside) first_rows[e] = row;
    if (tables) {
      const std::int32_t tile = tiles_before + block_exclusive_sum(tiles, sums, &tile_total);
      for (std::int32_t i = 0; i < tiles; ++i) {
        a.tiles[tile + i] = token_tile_of(e, rows, row, tile, i, a.plan.token_tile);
      }
    }
    padded_before += padded_total;
    tiles_before += tile_total;
  }
  if (tables && threadIdx.x == 0) *a.tile_count = tiles_before;
  __syncthreads();
}

// Adds up the counts of all blocks: all [experts] = rows of each expert, before [experts] = those of the blocks before
// this one. Integer sums in shared memory, so their order does not matter.
__device__ inline void add_up_blocks(const RouteArgs& a, std::int32_t* all, std::int32_t* before) {
  for (std::int32_t e = threadIdx.x; e < a.plan.experts; e += blockDim.x) all[e] = before[e] = 0;
  __syncthreads();
  const int parts = a.plan.experts < static_cast<int>(blockDim.x) ? static_cast<int>(blockDim.x) / a.plan.experts : 1;
  const int part = threadIdx.x / a.plan.experts;
  const int first = parts == 1 ? static_cast<int>(threadIdx.x) : static_cast<int>(threadIdx.x) % a.plan.experts;
  const int step = parts == 1 ? static_cast<int>(blockDim.x) : a.plan.experts;
  for (std::int32_t e = first; e < a.plan.experts && (parts == 1 || part < parts); e += step) {
    std::int32_t sum = 0, sum_before = 0;
#pragma unroll 8
    for (std::int32_t b = parts == 1 ? 0 : part; b < a.plan.blocks; b += parts) {
      const std::int32_t count = a.scratch[static_cast<std::int64_t>(b) * a.plan.experts + e];
      sum += count;
      sum_before += b < static_cast<std::int32_t>(blockIdx.x) ? count : 0;
    }
    atomicAdd(all + e, sum);
    atomicAdd(before + e, sum_before);
  }
  __syncthreads();
}

}  // namespace sluice::cuda
