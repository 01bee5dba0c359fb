// What a block of the expert GEMM kernel does while it waits for the routing kernel: it brings the start of the row
// tile that it will probably take first to L2. Only hints: nothing else relies on the ids that are read here.
#pragma once

#include "cuda/sm90/gemm_work.cuh"

namespace sluice::cuda::sm90 {

// One warp marks the experts with rows; flags [experts] in shared memory that bulk copies overwrite later.
__device__ __forceinline__ std::int32_t mark_experts(const GemmArgs& args, unsigned char* flags) {
  constexpr std::int32_t kAtOnce = 8;
  const std::int32_t lane = threadIdx.x % 32;
  for (std::int32_t e = lane; e < args.experts; e += 32) flags[e] = 0;
  __syncwarp();
  for (std::int32_t first = lane; first < args.few.count; first += 32 * kAtOnce) {
    std::int32_t ids[kAtOnce];
#pragma unroll
    for (std::int32_t i = 0; i < kAtOnce; ++i) {
      const std::int32_t r = first + 32 * i;
      ids[i] = r < args.few.count ? *static_cast<const volatile std::int32_t*>(args.few.ids + r) : -1;
    }
#pragma unroll
    for (std::int32_t i = 0; i < kAtOnce; ++i) {
      const std::int32_t e = ids[i] - args.few.first_slot;
      if (ids[i] >= 0 && e >= 0 && e < args.experts) flags[e] = 1;
    }
  }
  __syncwarp();
  std::int32_t active = 0;
  for (std::int32_t first = 0; first < args.experts; first += 32) {
    active += __popc(__ballot_sync(0xffffffffu, first + lane < args.experts && flags[first + lane] != 0));
  }
  return active;
}

// The marked expert that has `rank` before it, 0 where there is none.
__device__ __forceinline__ std::int32_t marked_expert(const GemmArgs& args, const unsigned char* flags,
                                                      std::int32_t rank) {
  const std::int32_t lane = threadIdx.x % 32;
  for (std::int32_t first = 0; first < args.experts; first += 32) {
    const bool marked = first + lane < args.experts && flags[first + lane] != 0;
    const std::uint32_t some = __ballot_sync(0xffffffffu, marked);
    const bool mine = marked && __popc(some & ((1u << lane) - 1u)) == rank;
    if (rank < __popc(some)) return first + __ffs(__ballot_sync(0xffffffffu, mine)) - 1;
    rank -= __popc(some);
  }
  return 0;
}

// One warp. `item` counts row tiles of the experts with rows, first those of FC1, as if each expert had one token tile.
__device__ __forceinline__ void bring_item_near(const GemmArgs& args, std::int32_t item, std::uint32_t rank,
                                                std::uint32_t split, unsigned char* flags) {
  constexpr std::int32_t kAheadBytes = 128 << 10, kPart = kAheadBytes / 32;
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t active = mark_experts(args, flags);
  const std::int32_t of_first = active * args.sides[0].tiles;
  const std::int32_t s = item < of_first ? 0 : 1, q = s == 0 ? item : item - of_first;
  const GemmSide& side = args.sides[s];
  WorkItem w{};
  w.expert = marked_expert(args, flags, q / side.tiles);
  ptx::fence_async_shared();
  if (q / side.tiles >= active) return;
  w.row_tile = q % side.tiles;
  // Half tiles alternate in memory: two of them bring one piece after the other.
  const TileSource source = tile_source(side, w);
  const KRange range = k_range(side.k_blocks, rank, split);
  const std::uint8_t* tile = source.codes - w.row_tile * side.tile_records % kTileRecords * kRecordBytes;
  const std::int64_t piece = side.tile_records < kTileRecords ? w.row_tile % 2 * kAheadBytes : 0;
  const std::int64_t at = piece + lane * kPart, length = (range.end - range.begin) * std::int64_t{source.stride};
  if (at + kPart <= length) {
    ptx::bulk_prefetch(tile + range.begin * std::int64_t{source.stride} + at, kPart);
  }
}

}  // namespace sluice::cuda::sm90
