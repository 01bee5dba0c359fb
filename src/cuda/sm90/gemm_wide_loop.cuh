// Products of the expert GEMM kernel for many rows an expert in fp8_block: token rows are the M operand here, 64 of a
// tile's 128 to each warpgroup, and the 256 weight rows are N, so that scales are four numbers a K block in place of
// one for each column.
//
// Called by gemm_wide.cuh. Same records, stages and loads as in gemm_mainloop.cuh. The two warpgroups share stages of
// the ring and nothing else, so that one can finish a tile while the other multiplies.
#pragma once

#include "cuda/sm90/gemm_large.cuh"

namespace sluice::cuda::sm90 {

inline constexpr int kWideGroup = 64;  // token rows of one warpgroup

// Element 8 i + e of packed rows 16 i .. 16 i + 15: e = 0, 1 token lane / 4, e = 2, 3 token lane / 4 + 8; columns
// 2 (lane % 4) + e % 2, of the upper 8 packed rows from e + 4 on.
using WideAccumulators = float[128];

using WideScales = float[2][2];  // [token row][packed rows 0-7, 8-15 of 16]

// x_scale * w_scale of half a stage. Read while its products are made.
__device__ __forceinline__ void load_scales_wide(const Consumer& c, std::uint32_t stage, int half, WideScales& s) {
  const float* scales =
      reinterpret_cast<const float*>(c.shared + LargeShared::kScales + stage * LargeShared::kScaleBytes);
  const float2 w = *reinterpret_cast<const float2*>(scales + 2 * half);
  const float* x = scales + 4 + c.group * kWideGroup + c.warp * 16 + (c.lane >> 2);
  s[0][0] = x[0] * w.x;
  s[0][1] = x[0] * w.y;
  s[1][0] = x[8] * w.x;
  s[1][1] = x[8] * w.y;
}

__device__ __forceinline__ void promote_wide(int half, const float (&chain)[64], const WideScales& s,
                                             WideAccumulators& acc) {
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    float& d = acc[half * 64 + i];
    d = fmaf(chain[i], s[i / 2 % 2][i / 4 % 2], d);
  }
}

// Low words of the operands of a stage. Stepped with the ring, so that nothing is computed between two batches.
class WideOperands {
 public:
  __device__ WideOperands(const Consumer& c, std::uint32_t stage)
      : first_tokens_(ptx::operand_low(c.base + LargeShared::kB + c.group * kWideGroup * kBlockBytes)),
        first_weights_(ptx::operand_low(c.base + LargeShared::kA)),
        tokens_(first_tokens_ + stage * kTokenStep),
        weights_(first_weights_ + stage * kWeightStep) {}

  __device__ void advance(bool to_first) {
    tokens_ = to_first ? first_tokens_ : tokens_ + kTokenStep;
    weights_ = to_first ? first_weights_ : weights_ + kWeightStep;
  }

  // The products of half a stage.
  __device__ void multiply(int half, float (&chain)[64]) const {
    constexpr std::uint32_t kHalf = 2 * kRecordBytes >> 4, kSlice = ptx::kSliceStep;
    ptx::keep_in_registers(chain);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      ptx::wgmma<128, ptx::Operand::e4m3>(chain, ptx::operand(tokens_ + k * kSlice),
                                          ptx::operand(weights_ + half * kHalf + k * kSlice), k > 0 ? 1 : 0);
    }
    ptx::wgmma_commit();
  }

 private:
  static constexpr std::uint32_t kTokenStep = LargeShared::kStageB >> 4, kWeightStep = LargeShared::kStageA >> 4;
  std::uint32_t first_tokens_, first_weights_, tokens_, weights_;
};

// While a warpgroup adds one batch to its sums the tensor cores have only the other's products, so there is nothing
// else between the end of a batch and the start of the next: the next stage is looked up, the last one given back and
// scales are read while products are made. One half when only the first two records of the tile exist.
template <int Halves>
__device__ __forceinline__ void multiply_wide(const Consumer& c, LargeRing& ring, std::int32_t blocks,
                                              WideAccumulators& acc) {
  float chain[64];
  WideScales s;
#pragma unroll
  for (int i = 0; i < 128; ++i) acc[i] = 0.0f;
  WideOperands operands(c, ring.stage);
  std::uint32_t previous = 0;
  bool ready = false;
  for (std::int32_t n = 0; n < blocks; ++n) {
    if (!ready) ptx::mbarrier_wait(c.base + LargeShared::kFull + 8 * ring.stage, ring.phase);
#pragma unroll
    for (int half = 0; half < Halves; ++half) {
      operands.multiply(half, chain);
      if (half == 0 && n > 0) release_stage<kLargeTokens, Format::fp8_block>(c, previous);
      load_scales_wide(c, ring.stage, half, s);
      if (half == Halves - 1) {
        previous = ring.stage;
        ring.advance();
        operands.advance(ring.stage == 0);
        ready = n + 1 < blocks && ptx::mbarrier_test(c.base + LargeShared::kFull + 8 * ring.stage, ring.phase);
      }
      ptx::wgmma_wait<0>();
      ptx::keep_in_registers(chain);
      promote_wide(half, chain, s, acc);
    }
  }
  release_stage<kLargeTokens, Format::fp8_block>(c, previous);
}

__device__ __forceinline__ void multiply_wide(const Consumer& c, LargeRing& ring, const GemmSide& side,
                                              const WorkItem& w, WideAccumulators& acc) {
  const bool half = side.records - w.row_tile * kTileRecords <= 2;
  if (half) return multiply_wide<1>(c, ring, side.k_blocks, acc);
  multiply_wide<2>(c, ring, side.k_blocks, acc);
}

}  // namespace sluice::cuda::sm90
