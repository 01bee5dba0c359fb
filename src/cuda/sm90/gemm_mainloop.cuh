// Main loop of the expert GEMM kernel: one warpgroup multiplies its 128 packed rows by up to N token rows.
//
// Called by the consumer warpgroups. Stages arrive in a ring of shared memory and are given back here. bf16 sums in the
// tensor core's fp32 accumulators; fp8 sums 128 products there and adds the segments in fp32 registers, scaled first in
// fp8_block (recipe.h; the scaled add is one fused multiply-add).
#pragma once

#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/gemm_work.cuh"

namespace sluice::cuda::sm90 {

// Where a consumer thread stands.
struct Consumer {
  unsigned char* shared;  // dynamic shared memory
  std::uint32_t base;     // its address
  std::int32_t group;     // warpgroup, 0 or 1
  std::int32_t warp;      // of the warpgroup
  std::int32_t lane;
};

// Arrivals that free a stage. In fp8_block every lane reads scales there, and arrives for itself: racecheck does not
// follow an arrival for a whole warp.
template <int NT, Format F>
__host__ __device__ constexpr std::uint32_t stage_releases() {
  constexpr std::uint32_t kWarps = kConsumers / 32;
  return kWarps * ((F == Format::fp8_block ? 32 : 1) + SharedLayout<NT>::kCluster - 1);
}

// In a pair the other block writes into this one's stages too.
template <int NT, Format F>
__device__ __forceinline__ void release_stage(const Consumer& c, std::uint32_t stage) {
  __syncwarp();
  const std::uint32_t empty = c.base + SharedLayout<NT>::kEmpty + 8 * stage;
  if (F == Format::fp8_block || c.lane == 0) ptx::mbarrier_arrive(empty);
  if (SharedLayout<NT>::kPaired && c.lane == 1) {
    ptx::mbarrier_arrive_remote(ptx::cluster_address(empty, ptx::cluster_rank() ^ 1));
  }
}

template <int NT>
using Accumulators = float[2][NT / 2];  // [record of the warpgroup][element of the m64 fragment]

// One K block of a record into d; `block` of the stage.
template <int NT, int N, ptx::Operand Type, int Count>
__device__ __forceinline__ void multiply_block(const Consumer& c, std::uint32_t stage, int block, std::int32_t record,
                                               float (&d)[Count], bool accumulate) {
  using S = SharedLayout<NT>;
  const std::uint64_t a =
      ptx::swizzled_operand(c.base + S::kA + stage * S::kStageA + block * (S::kStageA / 2) + record * kRecordBytes);
  const std::uint64_t b = ptx::swizzled_operand(c.base + S::kB + stage * S::kStageB + block * S::kTokenBlock);

#pragma unroll
  for (int k = 0; k < 4; ++k) {
    ptx::wgmma<N, Type>(d, a + k * ptx::kSliceStep, b + k * ptx::kSliceStep, (accumulate || k > 0) ? 1 : 0);
  }
}

template <int NT, int N>
__device__ __forceinline__ void clear(Accumulators<NT>& acc) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) acc[m][i] = 0.0f;
    ptx::keep_in_registers(acc[m]);
  }
}

template <int NT, int N>
__device__ __forceinline__ void multiply_bf16(const Consumer& c, RingCursor<SharedLayout<NT>::kStages>& ring,
                                              std::int32_t blocks, Accumulators<NT>& acc) {
  using S = SharedLayout<NT>;
  std::uint32_t previous = 0;
  clear<NT, N>(acc);
  for (std::int32_t i = 0; i < blocks; ++i) {
    ptx::mbarrier_wait(c.base + S::kFull + 8 * ring.stage, ring.phase);
    ptx::wgmma_fence();
#pragma unroll
    for (int m = 0; m < 2; ++m)
      multiply_block<NT, N, ptx::Operand::bf16>(c, ring.stage, 0, 2 * c.group + m, acc[m], true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (i > 0) release_stage<NT, Format::bf16>(c, previous);
    previous = ring.stage;
    ring.advance();
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int m = 0; m < 2; ++m) ptx::keep_in_registers(acc[m]);
  if (blocks > 0) release_stage<NT, Format::bf16>(c, previous);
}

// acc += chain * scales of the segment; row halves r and r + 8 of the fragment have a weight scale each.
template <int NT, int N, Format F>
__device__ __forceinline__ void promote(const Consumer& c, std::uint32_t stage, int block, std::int32_t weight_scale,
                                        const float (&chain)[N / 2], float (&acc)[NT / 2]) {
  if constexpr (F == Format::fp8_tensor) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) acc[i] += chain[i];
    return;
  }
  using S = SharedLayout<NT>;
  const float* scales =
      reinterpret_cast<const float*>(c.shared + S::kScales + stage * S::kScaleBytes + block * S::kScaleBlock);
  const float2 w = *reinterpret_cast<const float2*>(scales + weight_scale);
  const float* x = scales + 4 + 2 * (c.lane & 3);
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
    const float2 s = *reinterpret_cast<const float2*>(x + 8 * j);
    acc[4 * j] = fmaf(chain[4 * j], s.x * w.x, acc[4 * j]);
    acc[4 * j + 1] = fmaf(chain[4 * j + 1], s.y * w.x, acc[4 * j + 1]);
    acc[4 * j + 2] = fmaf(chain[4 * j + 2], s.x * w.y, acc[4 * j + 2]);
    acc[4 * j + 3] = fmaf(chain[4 * j + 3], s.y * w.y, acc[4 * j + 3]);
  }
}

// Two chains are in flight, one of each record.
template <int NT, int N, Format F>
__device__ __forceinline__ void multiply_fp8(const Consumer& c, RingCursor<SharedLayout<NT>::kStages>& ring,
                                             std::int32_t blocks, Accumulators<NT>& acc) {
  using S = SharedLayout<NT>;
  float chain[2][N / 2];
  clear<NT, N>(acc);
  for (std::int32_t n = 0; n < blocks; ++n) {
    ptx::mbarrier_wait(c.base + S::kFull + 8 * ring.stage, ring.phase);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      ptx::keep_in_registers(chain[m]);
      ptx::wgmma_fence();
      multiply_block<NT, N, ptx::Operand::e4m3>(c, ring.stage, 0, 2 * c.group + m, chain[m], false);
      ptx::wgmma_commit();
    }
    ptx::wgmma_wait<1>();
    ptx::keep_in_registers(chain[0]);
    promote<NT, N, F>(c, ring.stage, 0, 2 * c.group, chain[0], acc[0]);
    ptx::wgmma_wait<0>();
    ptx::keep_in_registers(chain[1]);
    promote<NT, N, F>(c, ring.stage, 0, 2 * c.group, chain[1], acc[1]);
    release_stage<NT, F>(c, ring.stage);
    ring.advance();
  }
}

template <int NT, int N, Format F>
__device__ __forceinline__ void multiply(const Consumer& c, RingCursor<SharedLayout<NT>::kStages>& ring,
                                         std::int32_t blocks, Accumulators<NT>& acc) {
  if constexpr (F == Format::bf16) {
    multiply_bf16<NT, N>(c, ring, blocks, acc);
  } else {
    multiply_fp8<NT, N, F>(c, ring, blocks, acc);
  }
}

// A stage of a half tile with Blocks K blocks: a record a warpgroup, acc[0].
template <int NT, Format F, int Blocks>
__device__ __forceinline__ void multiply_half_stage(const Consumer& c, RingCursor<SharedLayout<NT>::kStages>& ring,
                                                    std::int32_t weight_scale, Accumulators<NT>& acc) {
  ptx::mbarrier_wait(c.base + SharedLayout<NT>::kFull + 8 * ring.stage, ring.phase);
  if constexpr (F == Format::bf16) {
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
      multiply_block<NT, NT, ptx::Operand::bf16>(c, ring.stage, i, c.group, acc[0], true);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::keep_in_registers(acc[0]);
  } else {
    float chain[Blocks][NT / 2];
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
      multiply_block<NT, NT, ptx::Operand::e4m3>(c, ring.stage, i, c.group, chain[i], false);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
      ptx::keep_in_registers(chain[i]);
      promote<NT, NT, F>(c, ring.stage, i, weight_scale, chain[i], acc[0]);
    }
  }
  release_stage<NT, F>(c, ring.stage);
  ring.advance();
}

template <int NT, Format F>
__device__ __forceinline__ void multiply_half(const Consumer& c, RingCursor<SharedLayout<NT>::kStages>& ring,
                                              std::int32_t blocks, std::int32_t row_tile, Accumulators<NT>& acc) {
  const std::int32_t weight_scale = 2 * (row_tile % 2);
  clear<NT, NT>(acc);
  for (std::int32_t n = 0; n + 1 < blocks; n += 2) multiply_half_stage<NT, F, 2>(c, ring, weight_scale, acc);
  if (blocks % 2 == 1) multiply_half_stage<NT, F, 1>(c, ring, weight_scale, acc);
}

// Adds the partial sums of the cluster in ascending K order in block 0; `sequence` counts the items of this cluster.
template <int NT>
__device__ __forceinline__ void reduce_over_cluster(const Consumer& c, std::uint32_t rank, std::uint32_t split,
                                                    std::uint32_t sequence, Accumulators<NT>& acc) {
  using S = SharedLayout<NT>;
  const std::uint32_t thread = c.group * 128 + c.warp * 32 + c.lane;
  constexpr int kVectors = NT / 4;
  constexpr std::uint32_t kPartBytes = kConsumers * NT * 4;  // of one block
  if (rank != 0) {
    if (sequence > 0) ptx::mbarrier_wait(c.base + S::kReduceEmpty, (sequence - 1) & 1);
    const std::uint32_t to = ptx::cluster_address(c.base + S::kReduceAt + (rank - 1) * kPartBytes + thread * 16, 0);
    const std::uint32_t full = ptx::cluster_address(c.base + S::kReduceFull, 0);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const float* d = &acc[v * 4 / (NT / 2)][v * 4 % (NT / 2)];
      ptx::store_async(to + v * kConsumers * 16, full, __float_as_int(d[0]), __float_as_int(d[1]), __float_as_int(d[2]),
                       __float_as_int(d[3]));
    }
    return;
  }
  if (thread == 0) ptx::mbarrier_arrive_expect(c.base + S::kReduceFull, (split - 1) * kPartBytes);
  ptx::mbarrier_wait_cluster(c.base + S::kReduceFull, sequence & 1);
  for (std::uint32_t r = 1; r < split; ++r) {
    const unsigned char* from = c.shared + S::kReduceAt + (r - 1) * kPartBytes + thread * 16;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const float4 p = *reinterpret_cast<const float4*>(from + v * kConsumers * 16);
      float* d = &acc[v * 4 / (NT / 2)][v * 4 % (NT / 2)];
      d[0] += p.x;
      d[1] += p.y;
      d[2] += p.z;
      d[3] += p.w;
    }
  }
  __syncwarp();
  if (c.lane == 0) {
    for (std::uint32_t r = 1; r < split; ++r) {
      ptx::mbarrier_arrive_remote(ptx::cluster_address(c.base + S::kReduceEmpty, r));
    }
  }
}

}  // namespace sluice::cuda::sm90
