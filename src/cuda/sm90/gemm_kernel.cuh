// The expert GEMM kernel: FC1 and FC2 of all experts of a layer in one persistent launch.
//
// Launched by gemm_*.cu. One block of 384 threads per multiprocessor: warpgroups 0 and 1 multiply, warpgroup 2 has a
// warp that loads weights, one that loads token rows, one that stores tiles of the intermediate and, at token tiles of
// 128, one that takes items. Weights do not depend on the first GEMM, so their loads run ahead of it through the ring;
// only the token rows of FC2 wait for a counter per token tile. With a cluster of several blocks these share the K
// range of each tile (few rows), or each has a tile of its own and they share what they load (token tiles of 128,
// gemm_pairs.cuh).
#pragma once

#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/sm90/gemm_epilogue.cuh"
#include "cuda/sm90/gemm_even.cuh"
#include "cuda/sm90/gemm_pairs.cuh"
#include "cuda/sm90/gemm_wide.cuh"

namespace sluice::cuda::sm90 {

// A block's place in its cluster, whose blocks work on the same items.
struct Place {
  std::uint32_t rank, split;
};

__device__ __forceinline__ Place place_of_block() {
  const std::uint32_t split = ptx::cluster_blocks();
  return {split == 1 ? 0 : ptx::cluster_rank(), split};
}

template <int NT, Format F>
__device__ __forceinline__ void init_barriers(std::uint32_t base, std::uint32_t split) {
  using S = SharedLayout<NT>;
  constexpr std::uint32_t kWarps = kConsumers / 32;
  for (int s = 0; s < S::kStages; ++s) {
    ptx::mbarrier_init(base + S::kFull + 8 * s, 2);
    ptx::mbarrier_init(base + S::kEmpty + 8 * s, stage_releases<NT, F>());
  }
  // Loaders of weights read items too, in both blocks of a pair, in the second of two that share K.
  constexpr std::uint32_t kReaders = 1 + kWarps + S::kStoringWarps;
  for (int i = 0; i < kItemSlots; ++i) {
    ptx::mbarrier_init(base + S::kItemFull + 8 * i, 1);
    const std::uint32_t readers = S::kPaired ? 2 * kReaders + 2 : split > 1 ? 2 * kReaders + 1 : kReaders;
    ptx::mbarrier_init(base + S::kItemEmpty + 8 * i, readers);
  }
  ptx::mbarrier_init(base + S::kReduceFull, 1);
  ptx::mbarrier_init(base + S::kReduceEmpty, kWarps);
  ptx::mbarrier_init(base + S::kTermsFull, F == Format::fp8_tensor ? 2 : 1);
  ptx::mbarrier_init(base + S::kTermsEmpty, kConsumers);
  ptx::mbarrier_init(base + S::kNextItem, 1);
  ptx::fence_mbarrier_init();
}

// Until the routing kernel has ended: everything but the tables. The next kernel relies on that, too.
__device__ __forceinline__ void wait_for_rows() {
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
}

// K blocks of a stage.
template <int NT>
__device__ __forceinline__ std::int32_t stage_blocks(const GemmSide& side) {
  return SharedLayout<NT>::kHalfTiles && side.tile_records < kTileRecords ? 2 : 1;
}

// Stages of weights that are loaded while the routing kernel still writes rows: more would only hold these up. At token
// tiles of 128 (gemm_pairs.cuh) the ring itself is the bound.
inline constexpr std::uint32_t kStagesBeforeRows = 3;

// Weight records of an item, with the scales of their blocks.
template <int NT, Format F>
__device__ __forceinline__ void load_weights_of(const GemmArgs& args, const WorkItem& w, const Place& place,
                                                std::uint32_t base, RingCursor<SharedLayout<NT>::kStages>& ring) {
  using S = SharedLayout<NT>;
  const GemmSide& side = args.sides[w.side];
  const TileSource source = tile_source(side, w);
  const KRange range = k_range(side.k_blocks, place.rank, place.split);
  const std::int32_t step = stage_blocks<NT>(side);
  for (std::int32_t kb = range.begin; kb < range.end; kb += step) {
    const std::uint32_t full = base + S::kFull + 8 * ring.stage;
    const std::int32_t blocks = min(step, range.end - kb);
    ptx::mbarrier_wait(base + S::kEmpty + 8 * ring.stage, ring.phase ^ 1);
    if (ring.stage == kStagesBeforeRows && ring.phase == 0) ptx::wait_for_previous_kernel();  // at once later
    ptx::mbarrier_arrive_expect(full, blocks * (source.bytes + (F == Format::fp8_block ? 16 : 0)));
    for (std::int32_t i = 0; i < blocks; ++i) {
      ptx::bulk_load(base + S::kA + ring.stage * S::kStageA + i * (S::kStageA / 2),
                     source.codes + static_cast<std::int64_t>(kb + i) * source.stride, source.bytes, full);
      if constexpr (F == Format::fp8_block) {
        ptx::bulk_load(base + S::kScales + ring.stage * S::kScaleBytes + i * S::kScaleBlock,
                       source.scale + (kb + i) * 4, 16, full);
      }
    }
    ring.advance();
  }
}

// One thread of each block; that of block 0 takes the items.
template <int NT, Format F>
__device__ __forceinline__ void load_weights(const GemmArgs& args, const Place& place, std::uint32_t base) {
  RingCursor<SharedLayout<NT>::kStages> ring;
  if (place.rank != 0) {
    ItemReader<NT, false> items(base, true);
    for (WorkItem w; items.expect(), items.next(w);) load_weights_of<NT, F>(args, w, place, base, ring);
    return;
  }
  WorkCursor at(args);
  const WorkList work(args);
  ItemWriter<NT> queue(base);
  const auto put = [&](const WorkItem& w) { place.split > 1 ? queue.put(w, w) : queue.put(w); };
  for (; at.index() < work.total(); at.next()) {
    const WorkItem w = work.item(at.index());
    put(w);
    load_weights_of<NT, F>(args, w, place, base, ring);
  }
  put({-1, 0, 0, 0, 0, 0, 0});
}

// Token rows, with their scales. One thread.
template <int NT, Format F>
__device__ __forceinline__ void load_tokens(const GemmArgs& args, const Place& place, std::uint32_t base) {
  using S = SharedLayout<NT>;
  constexpr std::uint32_t kParts = S::kDirect ? 2 : 1;
  RingCursor<S::kStages> ring;
  ItemReader<NT, false> items(base, place.split > 1);
  for (WorkItem w; items.next(w);) {
    const GemmSide& side = args.sides[w.side];
    const std::uint32_t groups = (w.rows + kRowGroup - 1) / kRowGroup;
    const KRange range = k_range(side.k_blocks, place.rank, place.split);
    const std::int32_t step = stage_blocks<NT>(side);
    if (w.side == 1 && args.wait_ready) {
      const std::uint32_t parts = args.sides[0].tiles * kParts;
      ptx::wait_for_count(args.routes.ready + w.token_tile, parts);
      ptx::fence_async_global();
    }
    for (std::int32_t kb = range.begin; kb < range.end; kb += step) {
      const std::uint32_t full = base + S::kFull + 8 * ring.stage;
      const std::int32_t blocks = min(step, range.end - kb);
      ptx::mbarrier_wait(base + S::kEmpty + 8 * ring.stage, ring.phase ^ 1);
      ptx::mbarrier_arrive_expect(full, blocks * groups * (1024 + (F == Format::fp8_block ? 32 : 0)));
      for (std::int32_t i = 0; i < blocks; ++i) {
        const std::int64_t row = (kb + i) * args.padded_rows + w.first_row;
        ptx::bulk_load(base + S::kB + ring.stage * S::kStageB + i * S::kTokenBlock, side.image + row * kBlockBytes,
                       groups * 1024, full);
        if constexpr (F == Format::fp8_block) {
          ptx::bulk_load(base + S::kScales + ring.stage * S::kScaleBytes + i * S::kScaleBlock + 16,
                         side.image_scale + row, groups * 32, full);
        }
      }
      ring.advance();
    }
  }
}

// Copies staged tiles of the intermediate out and then counts them as ready. One warp; with nothing staged it only
// follows the queue.
template <int NT, Format F>
__device__ __forceinline__ void store_intermediate(const GemmArgs& args, std::uint32_t base, bool leader, bool staged) {
  using S = SharedLayout<NT>;
  constexpr int kBlocks = F == Format::bf16 ? 2 : 1;  // K blocks of FC2 in a row tile of FC1
  ItemReader<NT, true> items(base, false);
  for (WorkItem w; items.next(w);) {
    if (w.side == 1 || !staged) continue;
    ptx::barrier_sync(kBarrierStaged, kStoringThreads);
    if (leader) {
      const std::uint32_t bytes = (w.rows + kRowGroup - 1) / kRowGroup * 1024;
      for (int b = 0; b < kBlocks; ++b) {
        const std::int64_t kb = w.row_tile * kBlocks + b;
        if (kb >= args.sides[1].k_blocks) break;
        ptx::bulk_store(args.h + (kb * args.padded_rows + w.first_row) * kBlockBytes,
                        base + S::kStagingAt + b * NT * kBlockBytes, bytes);
      }
      ptx::bulk_commit();
      ptx::bulk_wait_read();
    }
    __syncwarp();
    ptx::barrier_arrive(kBarrierStagingFree, kStoringThreads);
    if (leader) {
      ptx::bulk_wait();
      ptx::fence_async_global();
      ptx::add_release(args.routes.ready + w.token_tile, 1);
    }
    __syncwarp();
  }
}

template <int NT, Format F, bool Curve>
__device__ __forceinline__ void consume(const GemmArgs& args, const Place& place, const Consumer& c) {
  RingCursor<SharedLayout<NT>::kStages> ring;
  bool staging_busy = false;
  std::uint32_t sequence = 0;
  ItemReader<NT, true> items(c.base, place.split > 1);
  for (WorkItem w; items.next(w); ++sequence) {
    const GemmSide& side = args.sides[w.side];
    const KRange range = k_range(side.k_blocks, place.rank, place.split);
    Accumulators<NT> acc;
    if (SharedLayout<NT>::kHalfTiles && side.tile_records < kTileRecords) {
      multiply_half<NT, F>(c, ring, range.end - range.begin, w.row_tile, acc);
    } else {
      multiply<NT, NT, F>(c, ring, range.end - range.begin, acc);
    }
    const RowTerms terms = load_row_terms<F>(c, side, w);
    if constexpr (SharedLayout<NT>::kMaxSplit > 1) {
      if (place.split > 1) reduce_over_cluster<NT>(c, place.rank, place.split, sequence, acc);
      if (place.rank != 0) continue;
    }
    if (w.side == 0) {
      finish_first<NT, F, Curve>(c, args, w, terms, acc, staging_busy);
    } else {
      finish_second<NT, F>(c, args, w, terms, acc, staging_busy);
    }
  }
  wait_staging_free(staging_busy);
}

// Of a thread, once roles are known; what the launch gives them holds both. fp8 keeps a second set of sums.
template <int NT, Format F>
struct Registers {
  static constexpr bool kLarge = NT == kLargeTokens;
  static constexpr int kMultiply = !kLarge ? 216 : F == Format::bf16 ? 224 : 232;
  static constexpr int kLoad = !kLarge ? 72 : F == Format::bf16 ? 56 : 40;
};

// `Direct`: GemmArgs::direct has an output. An instance of its own for token tiles of 128, where the branch costs 3 to
// 7 % of the time in fp8; smaller ones branch.
template <int NT, Format F, bool Curve, bool Direct = false>
__global__ void __launch_bounds__(kThreads, 1) expert_gemm(const __grid_constant__ GemmArgs args) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const std::uint32_t base = ptx::shared_address(shared);
  const Place place = place_of_block();
  // Of one value for the warp as far as the compiler knows, so that what follows from it stays out of vector registers:
  // at token tiles of 128 what stands between two batches of products counts.
  const std::int32_t warp_of_thread = threadIdx.x / 32;
  const std::int32_t warp = NT == kLargeTokens ? __shfl_sync(0xffffffffu, warp_of_thread, 0) : warp_of_thread;
  if (threadIdx.x == 0) init_barriers<NT, F>(base, place.split);
  if (place.split > 1) {
    ptx::cluster_sync();
  } else {
    __syncthreads();
  }
  if (warp >= kConsumers / 32) {
    ptx::registers_shrink<Registers<NT, F>::kLoad>();
    const std::int32_t role = warp - kConsumers / 32, lane = ptx::this_lane();
    // Those that load weights and take items start with the tables; up to 64 rows the loader waits for the rows before
    // stage kStagesBeforeRows.
    if (role != 0 && !(NT == kLargeTokens && role == 3)) wait_for_rows();
    const bool staged = F != Format::fp8_tensor || args.h_f32 == nullptr;
    if constexpr (SharedLayout<NT>::kPaired) {
      if (role == 0) load_weights_paired<F>(args, place.rank, base);
      if (role == 1) load_tokens_paired<F>(args, place.rank, base);
    } else {
      if (role == 0 && lane == 0) load_weights<NT, F>(args, place, base);
      if (role == 1 && lane == 0) load_tokens<NT, F>(args, place, base);
    }
    if constexpr (NT == kLargeTokens) {
      if constexpr (F == Format::fp8_block) {
        if (role == 2) store_intermediate_wide(args, base, lane == 0);
      } else {
        if (role == 2) store_intermediate_even<F>(args, shared, base, lane == 0, staged);
      }
      if (role == 3 && lane == 0 && place.rank == 0) take_items(args, base);
    } else if constexpr (!SharedLayout<NT>::kDirect) {
      if (role == 2) store_intermediate<NT, F>(args, base, lane == 0, staged);
    }
  } else {
    ptx::registers_grow<Registers<NT, F>::kMultiply>();
    wait_for_rows();
    // The shuffle again: and not computed anew inside of loops.
    const std::uint32_t known = NT == kLargeTokens ? __shfl_sync(0xffffffffu, base, 0) : base;
    const Consumer c{shared, known, warp / 4, warp % 4, ptx::this_lane()};
    if constexpr (NT == kLargeTokens && F == Format::fp8_block) {
      consume_wide<Curve, Direct>(args, c);
    } else if constexpr (NT == kLargeTokens) {
      consume_even<F, Curve, Direct>(args, c);
    } else {
      consume<NT, F, Curve>(args, place, c);
    }
  }
  __syncwarp();
  if (place.split > 1) ptx::cluster_sync();
}

}  // namespace sluice::cuda::sm90
