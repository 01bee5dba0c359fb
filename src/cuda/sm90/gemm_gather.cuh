// Token rows of FC1 for token tiles of 128, gathered by token instead of read from a sorted image (TokenRows).
//
// The warps that load weights and tokens copy the rows, 16 bytes a lane, to where they belong in the swizzled tile: 6
// cycles a row for both, where one warp takes 9.5 and a bulk copy of a K block of a row 50. The second block of a pair
// copies them for itself: to pass half of them on through the cluster was slower.
#pragma once

#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/sm90/gemm_args.cuh"
#include "cuda/sm90/gemm_work.cuh"

namespace sluice::cuda::sm90 {

// Position of a loader in the ring of stages: one register.
struct LoadRing {
  static constexpr std::uint32_t kStages = SharedLayout<128>::kStages;
  static_assert((kStages & (kStages - 1)) == 0);
  std::uint32_t count = 0;

  __device__ std::uint32_t stage() const { return count % kStages; }
  __device__ std::uint32_t stage_before(std::uint32_t n) const { return (count - n) % kStages; }
  __device__ std::uint32_t phase() const { return count / kStages % 2; }
  __device__ void advance() { ++count; }
};

// The copies of one warp for an item: a quarter of the rows for the one that loads weights (part 0), else the rest.
// Four lanes have a row, a lane its chunks c and c + 4 of a K block. A stage is counted as arrived (one arrival at its
// barrier) when the next kAhead are under way: at once the latency of each counts, later too little of the ring is
// left.
template <int Part>
class RowGather {
 public:
  using S = SharedLayout<kGatheredTile>;

  // Behind the routing kernel.
  __device__ RowGather(const TokenRows& x, const WorkItem& w) {
    const std::int32_t few = (w.rows + kRowGroup - 1) / kRowGroup * kFew / kAll * kRowGroup,
                       first = Part == 0 ? 0 : few;
    const std::int32_t lane = ptx::this_lane(), q = lane >> 2, c = lane & 3;
    count_ = Part == 0 ? few : w.rows - few;
    to_ = S::kB + (first + q) * kBlockBytes + ((c ^ q) * 16);
#pragma unroll
    for (std::int32_t i = 0; i < kGroups; ++i) {
      const std::int32_t row = i * kRowGroup + q;  // those behind the last get what is at hand
      offset_[i] = row < count_ ? x.row_token[w.first_row + first + row] * static_cast<std::uint32_t>(x.row_bytes) : 0;
    }
  }

  // K block kb to the ring's stage.
  __device__ void load(const TokenRows& x, std::int32_t kb, std::uint32_t base, const LoadRing& ring) const {
    const std::int32_t column = kb * kBlockBytes + (ptx::this_lane() & 3) * 16;
    const std::uint32_t low = column < x.width_bytes ? 16 : 0, high = column + 64 < x.width_bytes ? 16 : 0;
    const std::uint32_t to = base + ring.stage() * S::kStageB + to_;
    const std::uint8_t* from = x.rows + column;
#pragma unroll
    for (std::int32_t i = 0; i < kGroups; ++i) {
      if (i * kRowGroup >= count_) break;
      ptx::copy_ahead(to + i * kRowGroup * kBlockBytes, from + offset_[i], low);
      ptx::copy_ahead((to ^ 64) + i * kRowGroup * kBlockBytes, from + offset_[i] + 64, high);
    }
    ptx::copies_commit();
    if (kb < kAhead) return;
    ptx::copies_wait_group<kAhead>();
    arrive(base, ring.stage_before(kAhead));
  }

  // The last ones of `k_blocks`.
  __device__ static void finish(std::int32_t k_blocks, std::uint32_t base, const LoadRing& ring) {
    ptx::copies_wait_group<0>();
    for (std::int32_t i = min(k_blocks, kAhead); i > 0; --i) arrive(base, ring.stage_before(i));
  }

 private:
  static constexpr int kAhead = 1;                                  // stages under way while the next one is copied
  static constexpr int kAll = kGatheredTile / kRowGroup, kFew = 4;  // groups of 16
  static constexpr int kGroups = Part == 0 ? kFew : kAll - kFew;

  // The tensor core reads what this warp has written.
  __device__ static void arrive(std::uint32_t base, std::uint32_t stage) {
    ptx::fence_async_shared();
    __syncwarp();
    if (ptx::this_lane() == 0) ptx::mbarrier_arrive(base + S::kFull + 8 * stage);
  }

  std::int32_t count_;
  std::uint32_t to_;               // of the lane's first row, in the first stage
  std::uint32_t offset_[kGroups];  // of its rows
};

}  // namespace sluice::cuda::sm90
