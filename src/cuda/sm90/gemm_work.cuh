// The order of work of the expert GEMM kernel: which tile a block (or cluster) computes next.
//
// The loader of weights, at token tiles of 128 a thread of its own, takes items and hands them to the other roles of
// its block through a queue in shared memory.
#pragma once

#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/sm90/gemm_args.cuh"

namespace sluice::cuda::sm90 {

struct WorkItem {
  std::int32_t side;        // 0 = FC1, 1 = FC2
  std::int32_t row_tile;    // of the weights
  std::int32_t token_tile;  // index into RouteTables::tiles
  std::int32_t expert;
  std::int32_t first_row;
  std::int32_t rows;
  std::int32_t common;  // gemm_pairs.cuh: what the blocks of a pair both read
};

__device__ __forceinline__ TokenTile load_tile(const RouteTables& routes, std::int32_t index) {
  const int4* p = reinterpret_cast<const int4*>(routes.tiles + index);
  const int4 a = p[0], b = p[1];
  return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, 0};
}

// Indices of the items of one block, or of the blocks of a cluster. They take the next item when they are ready for it,
// so that neighbours in the order, which share weights or token rows, start close together and find them in L2, and
// nobody ever waits for an item that a block not yet running would have to compute. The first one is taken before the
// tables are there.
class WorkCursor {
 public:
  __device__ explicit WorkCursor(const GemmArgs& args) : args_(args) {
    if (args.routes.published == nullptr) ptx::wait_for_previous_kernel();
    next();
  }
  __device__ std::int32_t index() const { return index_; }
  __device__ void next() {
    index_ = static_cast<std::int32_t>(ptx::fetch_increment(args_.routes.ready, args_.routes.max_tiles - 1));
  }

 private:
  const GemmArgs& args_;
  std::int32_t index_ = 0;
};

// Waits until the tables can be read, by the calling thread alone; how many token tiles there are. Behind a WorkCursor.
__device__ __forceinline__ std::int32_t wait_for_tables(const RouteTables& routes) {
  if (routes.published == nullptr) return *routes.tile_count;
  return static_cast<std::int32_t>(ptx::wait_for_value(routes.published)) - 1;
}

// Items are numbered FC1 first; within a side by expert, then row tile, then token tile, so that neighbours share
// weights. FC1 items never wait for others, hence no deadlock as long as items are taken in order.
class WorkList {
 public:
  __device__ explicit WorkList(const GemmArgs& args) : args_(args) {
    tiles_ = wait_for_tables(args.routes);
    first_ = args.run_first ? tiles_ * args.sides[0].tiles : 0;
    total_ = first_ + (args.run_second ? tiles_ * args.sides[1].tiles : 0);
  }

  __device__ std::int32_t total() const { return total_; }

  __device__ WorkItem item(std::int32_t index) const {
    WorkItem w;
    w.side = index < first_ ? 0 : 1;
    const std::int32_t q = w.side == 0 ? index : index - first_;
    const std::int32_t row_tiles = args_.sides[w.side].tiles, own = q / row_tiles;
    const TokenTile t = load_tile(args_.routes, own);
    const std::int32_t local = q - t.first * row_tiles;
    w.row_tile = local / t.count;
    w.token_tile = t.first + (local - w.row_tile * t.count);
    const TileRows rows = rows_of_tile(t, own, w.token_tile);
    w.expert = t.expert;
    w.first_row = rows.first_row;
    w.rows = rows.rows;
    w.common = 0;
    return w;
  }

 private:
  const GemmArgs& args_;
  std::int32_t tiles_, first_, total_;
};

// Queues of items, written by whoever takes them, of block 0 for both blocks of a cluster; an item with side < 0 is
// the last. What is stored in another block arrives at a barrier there that its loader of weights has told to expect
// it.
template <int NT>
class ItemWriter {
 public:
  using S = SharedLayout<NT>;

  __device__ explicit ItemWriter(std::uint32_t base) : base_(base) {}
  __device__ void put(const WorkItem& w) {
    ptx::mbarrier_wait(base_ + S::kItemEmpty + 8 * slot(), phase() ^ 1);
    const std::uint32_t to = base_ + S::kItems + slot() * kItemBytes;
    ptx::store_shared(to, w.side, w.row_tile, w.token_tile, w.expert);
    ptx::store_shared(to + 16, w.first_row, w.rows, w.common, 0);
    ptx::mbarrier_arrive(base_ + S::kItemFull + 8 * slot());
    ++count_;
  }
  __device__ void put(const WorkItem& first, const WorkItem& second) {
    ptx::mbarrier_wait(base_ + S::kItemEmpty + 8 * slot(), phase() ^ 1);
    ptx::mbarrier_arrive_expect(base_ + S::kItemFull + 8 * slot(), kItemBytes);
    put_into(1, second);
    put_into(0, first);
    ++count_;
  }

 private:
  __device__ void put_into(std::uint32_t block, const WorkItem& w) const {
    const std::uint32_t to = ptx::cluster_address(base_ + S::kItems + slot() * kItemBytes, block);
    const std::uint32_t full = ptx::cluster_address(base_ + S::kItemFull + 8 * slot(), block);
    ptx::store_async(to, full, w.side, w.row_tile, w.token_tile, w.expert);
    ptx::store_async(to + 16, full, w.first_row, w.rows, w.common, 0);
  }
  __device__ std::uint32_t slot() const { return count_ % kItemSlots; }
  __device__ std::uint32_t phase() const { return count_ / kItemSlots % 2; }

  std::uint32_t base_, count_ = 0;  // items; one register, of which the loaders have few
};

// Read by each other role: every consumer warp, the loader of tokens (one thread), the storing warp, and the loader of
// weights where it does not take them itself. `both`: blocks of a cluster have items in common and say in block 0 that
// they have read them.
template <int NT, bool WholeWarp>
class ItemReader {
 public:
  using S = SharedLayout<NT>;

  __device__ ItemReader(std::uint32_t base, bool both)
      : base_(base), both_(S::kMayShareItems && (S::kPaired || both)) {}
  // Announces the next item's bytes: one reader of block 1, before next().
  __device__ void expect() const { ptx::mbarrier_arrive_expect(base_ + S::kItemFull + 8 * slot(), kItemBytes); }
  // False after the last item.
  __device__ bool next(WorkItem& w) {
    const std::uint32_t full = base_ + S::kItemFull + 8 * slot(), empty = base_ + S::kItemEmpty + 8 * slot();
    if (both_) {
      ptx::mbarrier_wait_cluster(full, phase());
    } else {
      ptx::mbarrier_wait(full, phase());
    }
    const std::uint32_t from = base_ + S::kItems + slot() * kItemBytes;
    const uint4 a = ptx::shared_vector(from), b = ptx::shared_vector(from + 16);
    const auto number = [](std::uint32_t v) { return static_cast<std::int32_t>(v); };
    w = {number(a.x), number(a.y), number(a.z), number(a.w), number(b.x), number(b.y), number(b.z)};
    if constexpr (WholeWarp) __syncwarp();
    const bool arrives = !WholeWarp || ptx::this_lane() == 0;
    if (arrives && both_) ptx::mbarrier_arrive_remote(ptx::cluster_address(empty, 0));
    if (arrives && !both_) ptx::mbarrier_arrive(empty);
    ++count_;
    return w.side >= 0;
  }

 private:
  __device__ std::uint32_t slot() const { return count_ % kItemSlots; }
  __device__ std::uint32_t phase() const { return count_ / kItemSlots % 2; }

  std::uint32_t base_, count_ = 0;
  bool both_;
};

// Position in the ring of stages.
template <int Stages>
struct RingCursor {
  std::uint32_t stage = 0;
  std::uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// Where a row tile lies in the packed weights.
struct TileSource {
  const std::uint8_t* codes;  // of K block 0
  const float* scale;         // of K block 0
  std::uint32_t bytes;        // of a K block
  std::uint32_t stride;       // from a K block to the next
};

__device__ __forceinline__ TileSource tile_source(const GemmSide& side, const WorkItem& w) {
  const std::int32_t first = w.row_tile * side.tile_records;  // record
  const std::int32_t packed = first / kTileRecords;
  const std::int32_t packed_tiles = (side.records + kTileRecords - 1) / kTileRecords;
  TileSource t;
  t.stride = min(kTileRecords, side.records - packed * kTileRecords) * kRecordBytes;
  t.bytes = min(side.tile_records, side.records - first) * kRecordBytes;
  t.codes = side.weights + w.expert * side.expert_bytes +
            static_cast<std::int64_t>(packed) * side.k_blocks * kTileRecords * kRecordBytes +
            (first % kTileRecords) * kRecordBytes;
  t.scale = side.block_scale + (static_cast<std::int64_t>(w.expert) * packed_tiles + packed) * side.k_blocks * 4;
  return t;
}

// K blocks [begin, end) of one block of a cluster.
struct KRange {
  std::int32_t begin, end;
};

__device__ __forceinline__ KRange k_range(std::int32_t k_blocks, std::uint32_t rank, std::uint32_t split) {
  return {static_cast<std::int32_t>(k_blocks * rank / split), static_cast<std::int32_t>(k_blocks * (rank + 1) / split)};
}

}  // namespace sluice::cuda::sm90
