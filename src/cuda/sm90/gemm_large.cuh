// What the two forms of token tiles of 128 in the expert GEMM kernel have in common: by columns (gemm_even.cuh), by
// halves of 64 rows in fp8_block (gemm_wide.cuh).
#pragma once

#include "cuda/sm90/gemm_epilogue.cuh"
#include "cuda/sm90/gemm_mainloop.cuh"
#include "cuda/sm90/gemm_pairs.cuh"

namespace sluice::cuda::sm90 {

inline constexpr int kLargeTokens = 128;  // token tile

using LargeShared = SharedLayout<kLargeTokens>;
using LargeRing = RingCursor<LargeShared::kStages>;

// Each warpgroup has barriers of its own with the storing warp.
inline constexpr std::uint32_t kLargeStaged = 1;       // and 2
inline constexpr std::uint32_t kLargeStagingFree = 3;  // and 4
inline constexpr std::uint32_t kLargeWarpgroup = 5;    // and 6: one warpgroup
inline constexpr std::uint32_t kLargeStoringThreads = 128 + 32;

__device__ __forceinline__ void wait_staging_free_large(const Consumer& c, bool& staging_busy) {
  if (staging_busy) ptx::barrier_sync(kLargeStagingFree + c.group, kLargeStoringThreads);
  staging_busy = false;
}

// A warpgroup without weight rows or token rows in a tile only gives stages back.
template <Format F>
__device__ __forceinline__ void skip_stages(const Consumer& c, LargeRing& ring, std::int32_t blocks) {
  for (std::int32_t n = 0; n < blocks; ++n) {
    ptx::mbarrier_wait(c.base + LargeShared::kFull + 8 * ring.stage, ring.phase);
    release_stage<kLargeTokens, F>(c, ring.stage);
    ring.advance();
  }
}

}  // namespace sluice::cuda::sm90
