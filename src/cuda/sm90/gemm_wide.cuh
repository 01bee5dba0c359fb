// Consumers of the expert GEMM kernel for many rows an expert in fp8_block (gemm_wide_loop.cuh): what becomes of the
// sums, and the roles of the kernel that use both.
//
// With tokens in M a thread has two token rows, so that fp8 scales are four numbers a K block, and all 128 features of
// a token are in four lanes: no exchange between warps.
#pragma once

#include <cfloat>

#include "cuda/sm90/gemm_wide_loop.cuh"

namespace sluice::cuda::sm90 {

// Adds the bias of the 8 packed rows of the tile that start at `row` to d[e] for the token rows.
__device__ __forceinline__ void add_bias_wide(const Consumer& c, const GemmSide& side, const WorkItem& w,
                                              std::int32_t row, float* d) {
  if (side.bias == nullptr) return;
  const std::int64_t rows = static_cast<std::int64_t>(side.records) * kRecordRows;
  const std::int64_t at = w.expert * rows + w.row_tile * kTileRecords * kRecordRows + row + 2 * (c.lane & 3);
  const float2 b = __ldg(reinterpret_cast<const float2*>(side.bias + at));
#pragma unroll
  for (int e = 0; e < 4; ++e) d[e] += e % 2 == 0 ? b.x : b.y;
}

// Instances without `Bias` save what a branch at each value costs.
template <bool Bias, typename Activation>
__device__ __forceinline__ void activate_wide(const Consumer& c, const GemmSide& side, const WorkItem& w,
                                              const Activation& activated, WideAccumulators& acc) {
  const std::int32_t records = min(kTileRecords, side.records - w.row_tile * kTileRecords);
#pragma unroll
  for (int record = 0; record < kTileRecords; ++record) {
    if (record >= records) break;
#pragma unroll
    for (int i = 4 * record; i < 4 * record + 4; ++i) {
      if (Bias) add_bias_wide(c, side, w, 16 * i, acc + 8 * i);
      if (Bias) add_bias_wide(c, side, w, 16 * i + 8, acc + 8 * i + 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[8 * i + e] = activated(acc[8 * i + e], acc[8 * i + 4 + e]);
    }
  }
}

// acc[8 i + e] becomes the activated value of feature 8 i + 2 (lane % 4) + e % 2 of token row e / 2. The branch is out
// here so that values do not wait for each other.
template <bool Curve>
__device__ __forceinline__ void activate_wide(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                              WideAccumulators& acc) {
  if (Curve && args.curve.plain && args.sides[0].bias == nullptr) {
    activate_wide<false>(
        c, args.sides[0], w, [](float gate, float up) { return plain_curve(gate, up); }, acc);
  } else if (Curve && args.curve.clamped) {
    activate_wide<true>(
        c, args.sides[0], w, [&](float gate, float up) { return clamped_curve(args.curve, gate, up); }, acc);
  } else {
    activate_wide<true>(
        c, args.sides[0], w, [&](float gate, float up) { return activation<Curve>(args, gate, up); }, acc);
  }
}

// Of token row r in this lane; NaN does not count.
template <typename Magnitude>
__device__ __forceinline__ float wide_amax(const WideAccumulators& acc, int r, const Magnitude& magnitude) {
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    amax = fmaxf(amax, fmaxf(magnitude(acc[8 * i + 2 * r]), magnitude(acc[8 * i + 2 * r + 1])));
  }
  return amax;
}

// Inverse scales of the two token rows over the 128 features; the scales go to global memory.
__device__ __forceinline__ float2 wide_group_scales(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                                    const WideAccumulators& acc) {
  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float amax = wide_amax(acc, r, [](float v) { return fabsf(v); });
    if (amax > FLT_MAX) amax = wide_amax(acc, r, finite_magnitude);
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 1));
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 2));
    const float scale = __fdiv_rn(fmaxf(amax, 1e-10f), kE4m3Max);
    inverse[r] = __fdiv_rn(1.0f, scale);
    const std::int32_t row = c.group * kWideGroup + c.warp * 16 + (c.lane >> 2) + 8 * r;
    if ((c.lane & 3) == 0 && row < round_up(w.rows, kRowGroup)) {
      args.h_scale[w.row_tile * args.padded_rows + w.first_row + row] = scale;
    }
  }
  return make_float2(inverse[0], inverse[1]);
}

// Staging area of a warpgroup: FC1 has a K block of 64 token rows there, FC2 rows of 256 bytes.
__host__ __device__ constexpr std::uint32_t wide_staging(std::int32_t group) {
  return LargeShared::kStagingAt + group * kWideGroup * 2 * kBlockBytes;
}

// Where a lane stores with the warp's 16 token rows at `from`, `stride` bytes each: rows 0-7 and 8-15 of an even chunk,
// then of the one behind it. Other chunks are at this address ^ 16 * chunk, since chunks are swizzled by row & 7.
__device__ __forceinline__ std::uint32_t staged_row(const Consumer& c, std::uint32_t from, std::uint32_t stride) {
  return from + (c.lane & 15) * stride + ((((c.lane >> 4) & 1) ^ (c.lane & 7)) * 16);
}

__device__ __forceinline__ void stage_wide(const Consumer& c, const WideAccumulators& acc, float2 inverse) {
  const std::uint32_t to = staged_row(c, c.base + wide_staging(c.group) + c.warp * 16 * kBlockBytes, kBlockBytes);
#pragma unroll
  for (int chunk = 0; chunk < 8; chunk += 2) {
    std::uint32_t word[4];  // [chunk][row]
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = chunk + i / 2;
      const float f = i % 2 == 0 ? inverse.x : inverse.y;
      const float* low = acc + 8 * (at / 4 * 8 + at % 4) + i % 2 * 2;  // and features 32 above
      word[i] = ptx::pack_e4m3(low[0] * f, low[32] * f) | ptx::pack_e4m3(low[1] * f, low[33] * f) << 16;
    }
    ptx::store_matrix(to ^ (chunk * 16), word[0], word[1], word[2], word[3]);
  }
}

template <bool Curve>
__device__ __forceinline__ void finish_first_wide(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                                  WideAccumulators& acc, bool& staging_busy) {
  activate_wide<Curve>(c, args, w, acc);
  const float2 inverse = wide_group_scales(c, args, w, acc);
  wait_staging_free_large(c, staging_busy);
  stage_wide(c, acc, inverse);
  ptx::fence_async_shared();
  ptx::barrier_arrive(kLargeStaged + c.group, kLargeStoringThreads);
  staging_busy = true;
}

// 128 features of the warp's 16 token rows through its part of the staging area, rows of 256 bytes.
__device__ __forceinline__ void copy_slot_rows_wide(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                                    std::int32_t first_feature, const unsigned char* staged) {
  const std::int32_t chunk = c.lane & 15, odd = c.lane / 16;
  const std::int32_t feature = first_feature + chunk * 8;
  const std::int32_t first = c.group * kWideGroup + c.warp * 16 + odd;  // of the token rows of this lane: every other
  const std::int32_t rows = feature < args.hidden ? w.rows - first : 0;
  const std::uint32_t from = odd * 256 + (chunk ^ odd) * 16;
  uint4 v[8];
#pragma unroll
  for (int p = 0; p < 8; ++p) v[p] = *reinterpret_cast<const uint4*>(staged + (from ^ (2 * p % 8 * 16)) + p * 512);
  std::uint16_t* to = args.slot_rows + (w.first_row + first) * std::int64_t{args.hidden} + feature;
#pragma unroll
  for (int p = 0; p < 8; ++p) {
    if (2 * p < rows) *reinterpret_cast<uint4*>(to + 2 * p * std::int64_t{args.hidden}) = v[p];
  }
}

// The same to the output (DirectOutput). Rows and weights are looked up four at a time, as registers allow.
__device__ __forceinline__ void copy_outputs_wide(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                                  std::int32_t first_feature, const unsigned char* staged) {
  constexpr int kAhead = 4;
  const std::int32_t chunk = c.lane & 15;
  const std::int32_t feature = first_feature + chunk * 8;
  const std::int32_t first = c.group * kWideGroup + c.warp * 16 + c.lane / 16;
#pragma unroll
  for (int p0 = 0; p0 < 8; p0 += kAhead) {
    RowTarget to[kAhead];
#pragma unroll
    for (int p = 0; p < kAhead; ++p) {
      const std::int32_t token = first + 2 * (p0 + p);
      if (token < w.rows) to[p] = row_target<true>(args, w.first_row + token);
    }
#pragma unroll
    for (int p = 0; p < kAhead; ++p) {
      const std::int32_t row = 2 * (p0 + p) + c.lane / 16;
      const uint4 v = *reinterpret_cast<const uint4*>(staged + row * 256 + ((chunk ^ (row & 7)) * 16));
      if (first + 2 * (p0 + p) < w.rows && feature < args.hidden) store_features<true>(args, to[p], feature, v);
    }
  }
}

template <bool Direct, bool Bias>
__device__ __forceinline__ void finish_second_wide(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                                   WideAccumulators& acc, bool& staging_busy) {
  const GemmSide& side = args.sides[1];
  const std::int32_t records = min(kTileRecords, side.records - w.row_tile * kTileRecords);
  const std::int32_t offset = wide_staging(c.group) + c.warp * 16 * 256;
  const std::uint32_t to = staged_row(c, c.base + offset, 256);
  wait_staging_free_large(c, staging_busy);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half * 2 >= records) break;
#pragma unroll
    for (int record = 2 * half; record < 2 * half + 2; ++record) {
      if (record >= records) break;
#pragma unroll
      for (int i = 4 * record; i < 4 * record + 4; ++i) {
        if (Bias) add_bias_wide(c, side, w, 16 * i, acc + 8 * i);
        if (Bias) add_bias_wide(c, side, w, 16 * i + 8, acc + 8 * i + 4);
      }
    }
#pragma unroll
    for (int chunk = 0; chunk < 16; chunk += 2) {
      const float* d = acc + 64 * half + 4 * chunk;
      ptx::store_matrix(to ^ (chunk * 16), ptx::pack_bf16(d[0], d[1]), ptx::pack_bf16(d[2], d[3]),
                        ptx::pack_bf16(d[4], d[5]), ptx::pack_bf16(d[6], d[7]));
    }
    __syncwarp();
    const std::int32_t feature = (w.row_tile * kTileRecords + 2 * half) * kRecordRows;
    if constexpr (Direct) {
      copy_outputs_wide(c, args, w, feature, c.shared + offset);
    } else {
      copy_slot_rows_wide(c, args, w, feature, c.shared + offset);
    }
    __syncwarp();
  }
}

template <bool Curve, bool Direct>
__device__ __forceinline__ void consume_wide(const GemmArgs& args, const Consumer& c) {
  LargeRing ring;
  bool staging_busy = false;
  ItemReader<kLargeTokens, true> items(c.base, true);
  for (WorkItem w; items.next(w);) {
    const GemmSide& side = args.sides[w.side];
    if (w.rows <= c.group * kWideGroup) {
      skip_stages<Format::fp8_block>(c, ring, side.k_blocks);
      continue;
    }
    WideAccumulators acc;
    multiply_wide(c, ring, side, w, acc);
    if (w.side == 0) {
      finish_first_wide<Curve>(c, args, w, acc, staging_busy);
    } else if (side.bias == nullptr) {
      finish_second_wide<Direct, false>(c, args, w, acc, staging_busy);
    } else {
      finish_second_wide<Direct, true>(c, args, w, acc, staging_busy);
    }
  }
  wait_staging_free_large(c, staging_busy);
}

// Copies the staged rows of each warpgroup out and then counts them as ready. One warp.
__device__ __forceinline__ void store_intermediate_wide(const GemmArgs& args, std::uint32_t base, bool leader) {
  ItemReader<kLargeTokens, true> items(base, true);
  for (WorkItem w; items.next(w);) {
    if (w.side == 1 || w.rows == 0) continue;
    for (std::int32_t group = 0; group < 2; ++group) {
      const std::int32_t rows = min(w.rows - group * kWideGroup, kWideGroup);
      if (rows > 0) ptx::barrier_sync(kLargeStaged + group, kLargeStoringThreads);
      if (leader && rows > 0) {
        const std::int64_t row = std::int64_t{w.row_tile} * args.padded_rows + w.first_row + group * kWideGroup;
        ptx::bulk_store(args.h + row * kBlockBytes, base + wide_staging(group),
                        (rows + kRowGroup - 1) / kRowGroup * kRowGroup * kBlockBytes);
        ptx::bulk_commit();
        ptx::bulk_wait_read();
      }
      __syncwarp();
      if (rows > 0) ptx::barrier_arrive(kLargeStagingFree + group, kLargeStoringThreads);
      if (leader) {
        ptx::bulk_wait();
        ptx::fence_async_global();
        ptx::add_release(args.routes.ready + w.token_tile, 1);
      }
      __syncwarp();
    }
  }
}

}  // namespace sluice::cuda::sm90
