// The order of work of the expert GEMM kernel: which tile a block (or cluster) computes next.
//
// Called by every role of the kernel, each on its own; all see the same sequence. Reads the routing tables only.
#pragma once

#include "cuda/ptx/copy.cuh"
#include "cuda/sm90/gemm_args.cuh"

namespace sluice::cuda::sm90 {

struct WorkItem {
  std::int32_t side;        // 0 = FC1, 1 = FC2
  std::int32_t row_tile;    // of the weights
  std::int32_t token_tile;  // index into RouteTables::tiles
  std::int32_t expert;
  std::int32_t first_row;
  std::int32_t rows;
};

// The items of one block: one of each round of `stride` items. The place within the round rotates, because a fixed one
// can coincide with the period of an expert's tiles and then gets only long or only short ones.
class WorkCursor {
 public:
  __device__ WorkCursor(std::int32_t start, std::int32_t stride, std::int32_t total)
      : within_(start), stride_(stride), total_(total) {
    if (index() >= total_) next();
  }
  __device__ bool done() const { return round_ >= total_; }
  __device__ std::int32_t index() const { return round_ + within_; }
  __device__ void next() {
    do {
      round_ += stride_;
      within_ += kRotation;
      while (within_ >= stride_) within_ -= stride_;
    } while (round_ < total_ && index() >= total_);
  }

 private:
  static constexpr std::int32_t kRotation = 37;
  std::int32_t round_ = 0, within_, stride_, total_;
};

// Items are numbered FC1 first; within a side by expert, then row tile, then token tile, so that neighbours share
// weights. FC1 items never wait for others, hence no deadlock as long as every block takes its items in order.
class WorkList {
 public:
  __device__ explicit WorkList(const GemmArgs& args) : args_(args) {
    tiles_ = __ldg(args.routes.tile_count);
    first_ = args.run_first ? tiles_ * args.sides[0].tiles : 0;
    total_ = first_ + (args.run_second ? tiles_ * args.sides[1].tiles : 0);
  }

  __device__ std::int32_t total() const { return total_; }

  __device__ WorkItem item(std::int32_t index) const {
    WorkItem w;
    w.side = index < first_ ? 0 : 1;
    const std::int32_t q = w.side == 0 ? index : index - first_;
    const std::int32_t row_tiles = args_.sides[w.side].tiles;
    TokenTile t = load(q / row_tiles);
    const std::int32_t local = q - t.first * row_tiles;
    w.row_tile = local / t.count;
    w.token_tile = t.first + (local - w.row_tile * t.count);
    if (t.count > 1) t = load(w.token_tile);
    w.expert = t.expert;
    w.first_row = t.first_row;
    w.rows = t.rows;
    return w;
  }

 private:
  __device__ TokenTile load(std::int32_t index) const {
    const int4* p = reinterpret_cast<const int4*>(args_.routes.tiles + index);
    const int4 a = __ldg(p);
    TokenTile t{a.x, a.y, a.z, a.w, __ldg(reinterpret_cast<const int*>(p + 1)), {}};
    return t;
  }

  const GemmArgs& args_;
  std::int32_t tiles_, first_, total_;
};

// The loader of weights leaves each item in the slot of its first stage; consumers read it there once that stage is
// full.
template <int NT>
__device__ __forceinline__ std::uint32_t item_slot(std::uint32_t base, std::uint32_t stage) {
  return base + SharedLayout<NT>::kItems + stage * kItemBytes;
}

__device__ __forceinline__ void put_item(std::uint32_t slot, const WorkItem& w) {
  ptx::store_shared(slot, w.side, w.row_tile, w.token_tile, w.expert);
  ptx::store_shared(slot + 16, w.first_row, w.rows, 0, 0);
}

__device__ __forceinline__ WorkItem get_item(const unsigned char* shared, std::uint32_t offset) {
  const int4 a = *reinterpret_cast<const int4*>(shared + offset);
  const int2 b = *reinterpret_cast<const int2*>(shared + offset + 16);
  return {a.x, a.y, a.z, a.w, b.x, b.y};
}

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

// K blocks [begin, end) of one block of a cluster.
struct KRange {
  std::int32_t begin, end;
};

__device__ __forceinline__ KRange k_range(std::int32_t k_blocks, std::uint32_t rank, std::uint32_t split) {
  return {static_cast<std::int32_t>(k_blocks * rank / split), static_cast<std::int32_t>(k_blocks * (rank + 1) / split)};
}

}  // namespace sluice::cuda::sm90
