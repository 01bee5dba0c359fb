// Pairs of blocks for token tiles of 128: the loading side of the expert GEMM kernel where two blocks of a cluster work
// on tiles that have something in common, which each loads half of, into both.
//
// A block takes 48 KB from L2 in the time of 1,024 cycles of products, which is about what L2 gives; two token tiles of
// one row tile need 32 KB a block. A thread of block 0 takes items for both and puts them into both queues. A stage is
// free when the consumers of both blocks have given it back, since either block may write into it.
#pragma once

#include "cuda/sm90/gemm_gather.cuh"
#include "cuda/sm90/gemm_work.cuh"

namespace sluice::cuda::sm90 {

// WorkItem::common of both blocks of a pair.
enum : std::int32_t {
  kCommonWeights = 0,  // two token tiles of a row tile
  kCommonTokens = 1,   // two row tiles of a token tile
  kAlone = 2,          // block 0 only; block 1 has no rows
};

// The items of a side: each token tile has half as many slots as there are row tiles. Within an expert go two row tiles
// at a time: all pairs of token tiles with the first, with the second, then single token tiles with both, so that
// whatever reads the same weights does so while they are in L2. A last tile of half the rows or less is a single one:
// beside a full tile it would leave its block idle for half of the time.
class PairList {
 public:
  using S = SharedLayout<128>;

  __device__ explicit PairList(const GemmArgs& args) : args_(args) {
    const std::int32_t tiles = wait_for_tables(args.routes);
    first_ = args.run_first ? tiles * slots(0) : 0;
    total_ = first_ + (args.run_second ? tiles * slots(1) : 0);
  }

  __device__ std::int32_t total() const { return total_; }

  // False for a slot without an item.
  __device__ bool items(std::int32_t index, WorkItem& a, WorkItem& b) const {
    const std::int32_t side = index < first_ ? 0 : 1, q = side == 0 ? index : index - first_;
    const std::int32_t row_tiles = args_.sides[side].tiles, of_tile = slots(side), own = q / of_tile;
    const TokenTile t = load_tile(args_.routes, own);
    const std::int32_t pairs = (2 * t.last_rows <= t.each ? t.count - 1 : t.count) / 2;
    const std::int32_t local = q - t.first * of_tile, two_rows = local / t.count, at = local - two_rows * t.count;
    std::int32_t row_tile = 2 * two_rows;
    if (at < 2 * pairs) {
      const bool upper = at >= pairs;
      row_tile += upper;
      const std::int32_t first = t.first + 2 * (upper ? at - pairs : at);
      a = item(side, row_tile, first, t, own, kCommonWeights);
      b = item(side, row_tile, first + 1, t, own, kCommonWeights);
      return row_tile < row_tiles;
    }
    const std::int32_t tile = t.first + at;
    const bool alone = row_tile + 1 == row_tiles;
    a = item(side, row_tile, tile, t, own, alone ? kAlone : kCommonTokens);
    b = a;
    b.row_tile = alone ? row_tile : row_tile + 1;
    b.rows = alone ? 0 : a.rows;
    return true;
  }

 private:
  __device__ std::int32_t slots(int side) const { return (args_.sides[side].tiles + 1) / 2; }

  __device__ static WorkItem item(std::int32_t side, std::int32_t row_tile, std::int32_t index, const TokenTile& t,
                                  std::int32_t own, std::int32_t common) {
    const TileRows rows = rows_of_tile(t, own, index);
    return {side, row_tile, index, t.expert, rows.first_row, rows.rows, common};
  }

  const GemmArgs& args_;
  std::int32_t first_, total_;
};

// What a block loads of something of `units` equal parts, and whether the other block gets it too.
struct Share {
  std::uint32_t first = 0, count = 0;  // units loaded here
  bool both = false;

  __device__ Share(std::uint32_t units, std::uint32_t rank, std::int32_t common, std::int32_t in_common) {
    if (common == in_common) {
      const std::uint32_t half = (units + 1) / 2;
      first = rank == 0 ? 0 : half;
      count = rank == 0 ? half : units - half;
      both = true;
    } else if (common != kAlone || rank == 0) {
      count = units;
    }
  }
};

__device__ __forceinline__ void load_share(std::uint32_t to, const void* from, std::uint32_t bytes,
                                           std::uint32_t barrier, bool both) {
  constexpr std::uint16_t kBoth = 3;
  if (bytes == 0) return;
  if (both) {
    ptx::bulk_load_multicast(to, from, bytes, barrier, kBoth);
  } else {
    ptx::bulk_load(to, from, bytes, barrier);
  }
}

// Whether the epilogue finds scales and biases of the packed rows in shared memory. Not in fp8_block, whose block
// scales take their place; biases are read from global memory there.
template <Format F>
__device__ __forceinline__ bool has_terms(const GemmSide& side) {
  if constexpr (F == Format::fp8_block) return false;
  return F == Format::fp8_tensor || side.bias != nullptr;
}

// Scales and biases of an item's rows. One thread, before the item's last K block is loaded: then nobody can be done
// with this item while others still read those of the item before.
template <Format F>
__device__ __forceinline__ void load_terms(const GemmSide& side, const WorkItem& w, std::uint32_t base,
                                           std::uint32_t& phase) {
  using S = SharedLayout<128>;
  if (!has_terms<F>(side)) return;
  const std::int64_t rows = static_cast<std::int64_t>(ptx::from_here(side.records)) * kRecordRows;
  const std::int32_t first = ptx::from_here(w.row_tile) * kTileRecords * kRecordRows;
  const std::uint32_t bytes = min(static_cast<std::int32_t>(rows) - first, kTileRecords * kRecordRows) * 4;
  const std::int32_t expert = ptx::from_here(w.expert);
  const bool biases = side.bias != nullptr;
  ptx::mbarrier_wait(base + S::kTermsEmpty, phase ^ 1);
  ptx::mbarrier_arrive_expect(base + S::kTermsFull, bytes * ((F == Format::fp8_tensor) + biases));
  if constexpr (F == Format::fp8_tensor) {
    ptx::bulk_load(base + S::kTerms, side.row_scale + expert * rows + first, bytes, base + S::kTermsFull);
  }
  if (biases) {
    ptx::bulk_load(base + S::kTerms + S::kTermsEach, side.bias + expert * rows + first, bytes, base + S::kTermsFull);
  }
  phase ^= 1;
}

// fp8_tensor: scales of an item's token rows, by the thread that loads these. The same otherwise.
__device__ __forceinline__ void load_token_terms(const GemmSide& side, const WorkItem& w, std::uint32_t base,
                                                 std::uint32_t& phase) {
  using S = SharedLayout<128>;
  const std::uint32_t groups = side.image_scale != nullptr ? (w.rows + kRowGroup - 1) / kRowGroup : 0;
  ptx::mbarrier_wait(base + S::kTermsEmpty, phase ^ 1);
  ptx::mbarrier_arrive_expect(base + S::kTermsFull, groups * kRowGroup * 4);
  if (groups > 0) {
    ptx::bulk_load(base + S::kTokenTerms, side.image_scale + w.first_row, groups * kRowGroup * 4, base + S::kTermsFull);
  }
  phase ^= 1;
}

inline constexpr std::int32_t kLookAhead = 4;  // K blocks that an item still has to load when the next one is taken

// The K blocks of one item.
template <Format F>
__device__ __forceinline__ void load_weights_of(const GemmArgs& args, const WorkItem& w, std::uint32_t rank,
                                                std::uint32_t base, LoadRing& ring, std::uint32_t& terms_phase) {
  using S = SharedLayout<128>;
  const GemmSide& side = args.sides[w.side];
  const TileSource source = tile_source(side, w);
  const Share share(source.bytes / kRecordBytes, rank, w.common, kCommonWeights);
  const std::uint32_t arriving = share.both || share.count > 0 ? source.bytes + (F == Format::fp8_block ? 16 : 0) : 0;
  const bool scales = F == Format::fp8_block && arriving > 0;
  const std::uint8_t* codes = source.codes + share.first * kRecordBytes;
  for (std::int32_t kb = 0; kb < side.k_blocks; ++kb) {
    const std::uint32_t full = base + S::kFull + 8 * ring.stage();
    ptx::mbarrier_wait(base + S::kEmpty + 8 * ring.stage(), ring.phase() ^ 1);
    if (rank == 0 && kb == max(side.k_blocks - kLookAhead, 0)) ptx::mbarrier_arrive(base + S::kNextItem);
    if (kb + 1 == side.k_blocks) load_terms<F>(side, w, base, terms_phase);
    ptx::mbarrier_arrive_expect(full, arriving);
    load_share(base + S::kA + ring.stage() * S::kStageA + share.first * kRecordBytes,
               codes + static_cast<std::int64_t>(kb) * source.bytes, share.count * kRecordBytes, full, share.both);
    if (scales) {
      ptx::bulk_load(base + S::kScales + ring.stage() * S::kScaleBytes, source.scale + kb * 4, 16, full);
    }
    ring.advance();
  }
}

// The same for FC1 where rows of x are gathered: by the first lane of a warp that copies some of the rows, and arrives
// when it has.
template <Format F>
__device__ __forceinline__ void load_weights_gathering(const GemmArgs& args, const WorkItem& w, std::uint32_t rank,
                                                       std::uint32_t base, LoadRing& ring, std::uint32_t& terms_phase) {
  using S = SharedLayout<128>;
  const GemmSide& side = args.sides[0];
  const TileSource source = tile_source(side, w);
  const Share share(source.bytes / kRecordBytes, rank, w.common, kCommonWeights);
  const bool both = share.both;
  // Bytes of a K block that arrive and that are loaded here: none, or the second block loads the end.
  const std::uint32_t here = share.count * kRecordBytes, bytes = both || here > 0 ? source.bytes : 0;
  const std::uint32_t offset = rank == 0 ? 0 : bytes - here;
  const std::uint8_t* codes = source.codes + offset;
  ptx::wait_for_previous_kernel();
  const RowGather<0> rows(args.x_rows, w);
#pragma unroll 1
  for (std::int32_t kb = 0; kb < side.k_blocks; ++kb, codes += bytes) {
    const std::uint32_t full = base + S::kFull + 8 * ring.stage();
    ptx::mbarrier_wait(base + S::kEmpty + 8 * ring.stage(), ring.phase() ^ 1);
    if (ptx::this_lane() == 0) {
      if (rank == 0 && kb == max(side.k_blocks - kLookAhead, 0)) ptx::mbarrier_arrive(base + S::kNextItem);
      if (kb + 1 == side.k_blocks) load_terms<F>(side, w, base, terms_phase);
      if (bytes > 0) ptx::mbarrier_expect(full, bytes + (F == Format::fp8_block ? 16 : 0));
      load_share(base + S::kA + ring.stage() * S::kStageA + offset, codes, here, full, both);
      if (F == Format::fp8_block && bytes > 0) {
        ptx::bulk_load(base + S::kScales + ring.stage() * S::kScaleBytes, source.scale + kb * 4, 16, full);
      }
    }
    rows.load(args.x_rows, kb, base, ring);
    ring.advance();
  }
  rows.finish(side.k_blocks, base, ring);
}

// Puts items into the queues of both blocks, the next one when the last K blocks of one are being loaded: then the way
// over the counter and the table costs no time, and nobody holds items that others could begin. One thread of block 0.
__device__ __forceinline__ void take_items(const GemmArgs& args, std::uint32_t base) {
  WorkCursor at(args);
  const PairList work(args);
  ItemWriter<128> queues(base);
  std::uint32_t phase = 0;
  for (; at.index() < work.total(); at.next()) {
    WorkItem a, b;
    if (!work.items(at.index(), a, b)) continue;
    queues.put(a, b);
    ptx::mbarrier_wait(base + SharedLayout<128>::kNextItem, phase);
    phase ^= 1;
  }
  queues.put({-1, 0, 0, 0, 0, 0, 0}, {-1, 0, 0, 0, 0, 0, 0});
}

// Of all lanes those of the first.
__device__ __forceinline__ void share_position(LoadRing& ring) { ring.count = __shfl_sync(0xFFFFFFFFu, ring.count, 0); }

// One warp of each block, most of the time one lane of it.
template <Format F>
__device__ __forceinline__ void load_weights_paired(const GemmArgs& args, std::uint32_t rank, std::uint32_t base) {
  LoadRing ring;
  std::uint32_t terms_phase = 0;
  ItemReader<128, true> items(base, true);
  while (true) {
    if (rank != 0 && ptx::this_lane() == 0) items.expect();  // the writer is in block 0 and expects there
    WorkItem w;
    if (!items.next(w)) break;
    if (w.side == 0 && args.x_rows.rows != nullptr) {
      load_weights_gathering<F>(args, w, rank, base, ring, terms_phase);
      continue;
    }
    if (ptx::this_lane() == 0) load_weights_of<F>(args, w, rank, base, ring, terms_phase);
    share_position(ring);
  }
}

// Token rows of an item from an image, with their scales. One thread.
template <Format F>
__device__ __forceinline__ void load_tokens_of(const GemmArgs& args, const WorkItem& w, std::uint32_t rank,
                                               std::uint32_t base, LoadRing& ring, std::uint32_t& terms_phase) {
  using S = SharedLayout<128>;
  constexpr std::uint32_t kGroupBytes = kRowGroup * kBlockBytes;
  constexpr std::uint32_t kScaleBytes = F == Format::fp8_block ? kRowGroup * 4 : 0;
  const GemmSide& side = args.sides[w.side];
  const std::uint32_t groups = (w.rows + kRowGroup - 1) / kRowGroup;
  const Share share(groups, rank, w.common, kCommonTokens);
  if (w.side == 1 && args.wait_ready && groups > 0) {
    const std::uint32_t parts = args.sides[0].tiles * 2;  // one a warpgroup
    ptx::wait_for_count(args.routes.ready + w.token_tile, parts);
    ptx::fence_async_global();
  }
  for (std::int32_t kb = 0; kb < side.k_blocks; ++kb) {
    const std::uint32_t full = base + S::kFull + 8 * ring.stage();
    const std::int64_t row = kb * args.padded_rows + w.first_row;
    ptx::mbarrier_wait(base + S::kEmpty + 8 * ring.stage(), ring.phase() ^ 1);
    if (F == Format::fp8_tensor && kb + 1 == side.k_blocks) load_token_terms(side, w, base, terms_phase);
    ptx::mbarrier_arrive_expect(full, groups * (kGroupBytes + kScaleBytes));
    load_share(base + S::kB + ring.stage() * S::kStageB + share.first * kGroupBytes,
               side.image + row * kBlockBytes + share.first * kGroupBytes, share.count * kGroupBytes, full, share.both);
    if constexpr (F == Format::fp8_block) {
      if (groups > 0) {
        ptx::bulk_load(base + S::kScales + ring.stage() * S::kScaleBytes + 16, side.image_scale + row,
                       groups * kScaleBytes, full);
      }
    }
    ring.advance();
  }
}

// The rest of the gathered rows, with the scales of all of them. One warp.
template <Format F>
__device__ __forceinline__ void load_tokens_gathering(const GemmArgs& args, const WorkItem& w, std::uint32_t base,
                                                      LoadRing& ring, std::uint32_t& terms_phase) {
  using S = SharedLayout<128>;
  const GemmSide& side = args.sides[0];
  const std::uint32_t scale_bytes = F == Format::fp8_block ? (w.rows + kRowGroup - 1) / kRowGroup * kRowGroup * 4 : 0;
  const RowGather<1> rows(args.x_rows, w);
#pragma unroll 1
  for (std::int32_t kb = 0; kb < side.k_blocks; ++kb) {
    const std::uint32_t full = base + S::kFull + 8 * ring.stage();
    ptx::mbarrier_wait(base + S::kEmpty + 8 * ring.stage(), ring.phase() ^ 1);
    if (ptx::this_lane() == 0) {
      if (F == Format::fp8_tensor && kb + 1 == side.k_blocks) load_token_terms(side, w, base, terms_phase);
      if (F == Format::fp8_block && scale_bytes > 0) {
        ptx::mbarrier_expect(full, scale_bytes);
        ptx::bulk_load(base + S::kScales + ring.stage() * S::kScaleBytes + 16,
                       side.image_scale + kb * args.padded_rows + w.first_row, scale_bytes, full);
      }
    }
    rows.load(args.x_rows, kb, base, ring);
    ring.advance();
  }
  rows.finish(side.k_blocks, base, ring);
}

// Token rows, with their scales. One warp of each block.
template <Format F>
__device__ __forceinline__ void load_tokens_paired(const GemmArgs& args, std::uint32_t rank, std::uint32_t base) {
  LoadRing ring;
  std::uint32_t terms_phase = 0;
  ItemReader<128, true> items(base, true);
  for (WorkItem w; items.next(w);) {
    if (w.side == 0 && args.x_rows.rows != nullptr) {
      load_tokens_gathering<F>(args, w, base, ring, terms_phase);
      continue;
    }
    if (ptx::this_lane() == 0) load_tokens_of<F>(args, w, rank, base, ring, terms_phase);
    share_position(ring);
  }
}

}  // namespace sluice::cuda::sm90
