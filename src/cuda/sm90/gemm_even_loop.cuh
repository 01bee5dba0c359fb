// Products of the expert GEMM kernel for many rows an expert, but in fp8_block: weights are M, two records to each
// warpgroup, and all token rows of the tile are N, in steps of 8. An expert's rows are cut evenly: 137 are two tiles of
// 72, which cost 1.13 times a full one.
//
// Called by gemm_even.cuh. Same records, stages and loads as in gemm_mainloop.cuh. The two warpgroups share stages of
// the ring and nothing else, so that one can finish a tile while the other multiplies.
#pragma once

#include <type_traits>

#include "cuda/sm90/gemm_large.cuh"

namespace sluice::cuda::sm90 {

// [record of the warpgroup][element of the m64 fragment]
using EvenAccumulators = Accumulators<kLargeTokens>;

// Records of the row tile that warpgroup `group` multiplies: 2, or less at the end of the weights.
__device__ __forceinline__ std::int32_t even_records(const GemmSide& side, const WorkItem& w, std::int32_t group) {
  return min(max(side.records - w.row_tile * kTileRecords - 2 * group, 0), 2);
}

// Columns<...>::find(groups, run) calls run(N) with the first N of the list that holds `groups` groups of token rows.
// Columns of rows that were not loaded become anything.
template <int... N>
struct Columns {
  template <int First = 0, int Last = sizeof...(N) - 1, typename Run>
  __device__ static __forceinline__ void find(std::int32_t groups, const Run& run) {
    constexpr int kList[] = {N...}, kMiddle = (First + Last) / 2;
    if constexpr (First == Last) {
      run(std::integral_constant<int, kList[First]>{});
    } else if (groups * kRowGroup <= kList[kMiddle]) {
      find<First, kMiddle>(groups, run);
    } else {
      find<kMiddle + 1, Last>(groups, run);
    }
  }
};

using EvenColumns = Columns<32, 64, 72, 80, 88, 96, 104, 112, 120, 128>;

// Low words of the operands of a stage, stepped with the ring.
class EvenOperands {
 public:
  __device__ EvenOperands(const Consumer& c, std::uint32_t stage)
      : first_weights_(ptx::operand_low(c.base + LargeShared::kA + 2 * c.group * kRecordBytes)),
        first_tokens_(ptx::operand_low(c.base + LargeShared::kB)),
        weights_(first_weights_ + stage * kWeightStep),
        tokens_(first_tokens_ + stage * kTokenStep) {}

  __device__ void advance(bool to_first) {
    weights_ = to_first ? first_weights_ : weights_ + kWeightStep;
    tokens_ = to_first ? first_tokens_ : tokens_ + kTokenStep;
  }

  // One K block of record m.
  template <int N, ptx::Operand Type, int Count>
  __device__ void multiply(int m, float (&d)[Count], bool accumulate) const {
    constexpr std::uint32_t kSlice = ptx::kSliceStep;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      ptx::wgmma<N, Type>(d, ptx::operand(weights_ + m * (kRecordBytes >> 4) + k * kSlice),
                          ptx::operand(tokens_ + k * kSlice), accumulate || k > 0 ? 1 : 0);
    }
  }

 private:
  static constexpr std::uint32_t kTokenStep = LargeShared::kStageB >> 4, kWeightStep = LargeShared::kStageA >> 4;
  std::uint32_t first_weights_, first_tokens_, weights_, tokens_;
};

template <int N, int Records>
__device__ __forceinline__ void multiply_even_bf16(const Consumer& c, LargeRing& ring, std::int32_t blocks,
                                                   EvenAccumulators& acc) {
  EvenOperands operands(c, ring.stage);
  std::uint32_t previous = 0;
  for (std::int32_t n = 0; n < blocks; ++n) {
    ptx::mbarrier_wait(c.base + LargeShared::kFull + 8 * ring.stage, ring.phase);
    ptx::wgmma_fence();
#pragma unroll
    for (int m = 0; m < Records; ++m) operands.multiply<N, ptx::Operand::bf16>(m, acc[m], true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (n > 0) release_stage<kLargeTokens, Format::bf16>(c, previous);
    previous = ring.stage;
    ring.advance();
    operands.advance(ring.stage == 0);
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int m = 0; m < Records; ++m) ptx::keep_in_registers(acc[m]);
  release_stage<kLargeTokens, Format::bf16>(c, previous);
}

// A batch is one record, or both where registers allow: batches of few columns are too short for the other warpgroup to
// fill what lies between two of them. While a warpgroup adds one batch to its sums the tensor cores have only the
// other's products, so there is nothing else between the end of a batch and the start of the next: the next stage is
// looked up and the last one given back while products are made.
template <int N, int Records, int Batch>
__device__ __forceinline__ void multiply_even_fp8(const Consumer& c, LargeRing& ring, std::int32_t blocks,
                                                  EvenAccumulators& acc) {
  float chain[Batch][N / 2];
  clear<kLargeTokens, N>(acc);
  EvenOperands operands(c, ring.stage);
  std::uint32_t previous = 0;
  bool ready = false;
  for (std::int32_t n = 0; n < blocks; ++n) {
    if (!ready) ptx::mbarrier_wait(c.base + LargeShared::kFull + 8 * ring.stage, ring.phase);
#pragma unroll
    for (int first = 0; first < Records; first += Batch) {
#pragma unroll
      for (int m = 0; m < Batch; ++m) ptx::keep_in_registers(chain[m]);
      ptx::wgmma_fence();
#pragma unroll
      for (int m = 0; m < Batch; ++m) operands.multiply<N, ptx::Operand::e4m3>(first + m, chain[m], false);
      ptx::wgmma_commit();
      if (first == 0 && n > 0) release_stage<kLargeTokens, Format::fp8_tensor>(c, previous);
      if (first + Batch == Records) {
        previous = ring.stage;
        ring.advance();
        operands.advance(ring.stage == 0);
        ready = n + 1 < blocks && ptx::mbarrier_test(c.base + LargeShared::kFull + 8 * ring.stage, ring.phase);
      }
      ptx::wgmma_wait<0>();
#pragma unroll
      for (int m = 0; m < Batch; ++m) {
        ptx::keep_in_registers(chain[m]);
#pragma unroll
        for (int i = 0; i < N / 2; ++i) acc[first + m][i] += chain[m][i];
      }
    }
  }
  release_stage<kLargeTokens, Format::fp8_tensor>(c, previous);
}

template <Format F, int N, int Records>
__device__ __forceinline__ void multiply_even(const Consumer& c, LargeRing& ring, std::int32_t blocks,
                                              EvenAccumulators& acc) {
  static_assert(F != Format::fp8_block);
  if constexpr (F == Format::bf16) {
    multiply_even_bf16<N, Records>(c, ring, blocks, acc);
  } else {
    multiply_even_fp8<N, Records, N <= 80 ? Records : 1>(c, ring, blocks, acc);
  }
}

template <Format F>
__device__ __forceinline__ void multiply_even(const Consumer& c, LargeRing& ring, const GemmSide& side,
                                              const WorkItem& w, EvenAccumulators& acc) {
  if constexpr (F == Format::bf16) clear<kLargeTokens, kLargeTokens>(acc);
  if (even_records(side, w, c.group) == 1) return multiply_even<F, kLargeTokens, 1>(c, ring, side.k_blocks, acc);
  const std::int32_t rows = __shfl_sync(0xffffffffu, w.rows, 0);  // one value a warp for the compiler, too
  EvenColumns::find((rows + kRowGroup - 1) / kRowGroup,
                    [&](auto n) { multiply_even<F, decltype(n)::value, 2>(c, ring, side.k_blocks, acc); });
}

}  // namespace sluice::cuda::sm90
