// Consumers of the expert GEMM kernel for many rows an expert (gemm_wide_loop.cuh): what becomes of the sums, and the
// roles of the kernel that use both.
//
// With tokens in M a thread has two token rows, so that fp8 scales are four numbers a K block, and all 128 features of
// a token are in four lanes: no exchange between warps.
#pragma once

#include <cfloat>

#include "cuda/sm90/gemm_epilogue.cuh"
#include "cuda/sm90/gemm_wide_loop.cuh"

namespace sluice::cuda::sm90 {

// Token rows of a thread and what belongs to them.
struct WideTokens {
  std::int32_t row[2];  // of the tile
  float scale[2];       // fp8_tensor
};

template <Format F>
__device__ __forceinline__ WideTokens wide_rows(const Consumer& c, const GemmSide& side, const WorkItem& w) {
  WideTokens t;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    t.row[i] = c.group * kWideGroup + c.warp * 16 + (c.lane >> 2) + 8 * i;
    t.scale[i] = side.image_static_scale;
    if (F == Format::fp8_tensor && side.image_scale != nullptr && t.row[i] < w.rows) {
      t.scale[i] = __ldg(side.image_scale + w.first_row + t.row[i]);
    }
  }
  return t;
}

// Scales (fp8_tensor) and, with `Bias`, the bias if there is one on the 8 packed rows of the tile that start at `row`:
// d[e] for the token rows. Instances without it save what a branch at each value costs.
template <Format F, bool Bias>
__device__ __forceinline__ void finish_wide(const Consumer& c, const GemmSide& side, const WorkItem& w,
                                            const WideTokens& t, std::int32_t row, float* d) {
  const auto* terms = reinterpret_cast<const float2*>(c.shared + WideShared::kTerms + 4 * row + 8 * (c.lane & 3));
  if constexpr (F == Format::fp8_tensor) {
    const float2 s = *terms;
#pragma unroll
    for (int e = 0; e < 4; ++e) d[e] = __fmul_rn(__fmul_rn(d[e], t.scale[e / 2]), e % 2 == 0 ? s.x : s.y);
  }
  if (Bias && side.bias != nullptr) {
    float2 b;
    if constexpr (F == Format::fp8_block) {
      const std::int64_t rows = static_cast<std::int64_t>(side.records) * kRecordRows;
      const std::int64_t at = w.expert * rows + w.row_tile * kTileRecords * kRecordRows + row + 2 * (c.lane & 3);
      b = __ldg(reinterpret_cast<const float2*>(side.bias + at));
    } else {
      b = terms[WideShared::kTermsEach / 8];
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) d[e] += e % 2 == 0 ? b.x : b.y;
  }
}

template <Format F, bool Bias, typename Activation>
__device__ __forceinline__ void activate_wide(const Consumer& c, const GemmSide& side, const WorkItem& w,
                                              const Activation& activated, WideAccumulators& acc) {
  const WideTokens t = wide_rows<F>(c, side, w);
  const std::int32_t records = min(kTileRecords, side.records - w.row_tile * kTileRecords);
#pragma unroll
  for (int record = 0; record < kTileRecords; ++record) {
    if (record >= records) break;
#pragma unroll
    for (int i = 4 * record; i < 4 * record + 4; ++i) {
      finish_wide<F, Bias>(c, side, w, t, 16 * i, acc + 8 * i);
      finish_wide<F, Bias>(c, side, w, t, 16 * i + 8, acc + 8 * i + 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[8 * i + e] = activated(acc[8 * i + e], acc[8 * i + 4 + e]);
    }
  }
}

// acc[8 i + e] becomes the activated value of feature 8 i + 2 (lane % 4) + e % 2 of token row e / 2. The branch is out
// here so that values do not wait for each other.
template <Format F, bool Curve>
__device__ __forceinline__ void activate_wide(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                              WideAccumulators& acc) {
  if (Curve && args.curve.plain && args.sides[0].bias == nullptr) {
    activate_wide<F, false>(
        c, args.sides[0], w, [](float gate, float up) { return plain_curve(gate, up); }, acc);
  } else if (F == Format::fp8_block && Curve && args.curve.clamped) {  // only there, see multiply_wide()
    activate_wide<F, true>(
        c, args.sides[0], w, [&](float gate, float up) { return clamped_curve(args.curve, gate, up); }, acc);
  } else {
    activate_wide<F, true>(
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

// Staging area of a warpgroup: FC1 has K blocks of 64 token rows there, FC2 rows of 256 bytes.
__host__ __device__ constexpr std::uint32_t wide_staging(std::int32_t group, int block) {
  return WideShared::kStagingAt + (group * 2 + block) * kWideGroup * kBlockBytes;
}

// Where a lane stores with the warp's 16 token rows at `from`, `stride` bytes each: rows 0-7 and 8-15 of an even chunk,
// then of the one behind it. Other chunks are at this address ^ 16 * chunk, since chunks are swizzled by row & 7.
__device__ __forceinline__ std::uint32_t staged_row(const Consumer& c, std::uint32_t from, std::uint32_t stride) {
  return from + (c.lane & 15) * stride + ((((c.lane >> 4) & 1) ^ (c.lane & 7)) * 16);
}

template <Format F>
__device__ __forceinline__ void stage_wide(const Consumer& c, const WideAccumulators& acc, float2 inverse) {
  const std::uint32_t to = staged_row(c, c.base + wide_staging(c.group, 0) + c.warp * 16 * kBlockBytes, kBlockBytes);
  constexpr std::uint32_t kSecond = wide_staging(0, 1) - wide_staging(0, 0);
  if constexpr (F == Format::bf16) {
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
      const float* d = acc + 8 * i;
      ptx::store_matrix((to ^ (i % 8 * 16)) + i / 8 * kSecond, ptx::pack_bf16(d[0], d[1]), ptx::pack_bf16(d[2], d[3]),
                        ptx::pack_bf16(d[8], d[9]), ptx::pack_bf16(d[10], d[11]));
    }
  } else {
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
}

__device__ __forceinline__ void store_unquantised_wide(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                                       const WideAccumulators& acc) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const std::int32_t row = c.group * kWideGroup + c.warp * 16 + (c.lane >> 2) + 8 * r;
    float* to = args.h_f32 + (w.first_row + row) * args.h_f32_stride + w.row_tile * 128 + 2 * (c.lane & 3);
    if (row >= w.rows) continue;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      *reinterpret_cast<float2*>(to + 8 * i) = make_float2(acc[8 * i + 2 * r], acc[8 * i + 2 * r + 1]);
    }
  }
}

// Each warpgroup has barriers of its own with the storing warp.
inline constexpr std::uint32_t kWideStaged = 1;       // and 2
inline constexpr std::uint32_t kWideStagingFree = 3;  // and 4
inline constexpr std::uint32_t kWideStoringThreads = 128 + 32;

__device__ __forceinline__ void wait_staging_free_wide(const Consumer& c, bool& staging_busy) {
  if (staging_busy) ptx::barrier_sync(kWideStagingFree + c.group, kWideStoringThreads);
  staging_busy = false;
}

template <Format F, bool Curve>
__device__ __forceinline__ void finish_first_wide(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                                  WideAccumulators& acc, bool& staging_busy) {
  activate_wide<F, Curve>(c, args, w, acc);
  if (F == Format::fp8_tensor && args.h_f32 != nullptr) return store_unquantised_wide(c, args, w, acc);
  float2 inverse = make_float2(1.0f, 1.0f);
  if constexpr (F == Format::fp8_block) inverse = wide_group_scales(c, args, w, acc);
  if constexpr (F == Format::fp8_tensor) inverse.x = inverse.y = __fdiv_rn(1.0f, args.h_static_scale);
  wait_staging_free_wide(c, staging_busy);
  stage_wide<F>(c, acc, inverse);
  ptx::fence_async_shared();
  ptx::barrier_arrive(kWideStaged + c.group, kWideStoringThreads);
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

template <Format F, bool Direct, bool Bias>
__device__ __forceinline__ void finish_second_wide(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                                   WideAccumulators& acc, bool& staging_busy) {
  const GemmSide& side = args.sides[1];
  const WideTokens t = wide_rows<F>(c, side, w);
  const std::int32_t records = min(kTileRecords, side.records - w.row_tile * kTileRecords);
  const std::int32_t offset = wide_staging(c.group, 0) + c.warp * 16 * 256;
  const std::uint32_t to = staged_row(c, c.base + offset, 256);
  wait_staging_free_wide(c, staging_busy);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half * 2 >= records) break;
#pragma unroll
    for (int record = 2 * half; record < 2 * half + 2; ++record) {
      if (record >= records) break;
#pragma unroll
      for (int i = 4 * record; i < 4 * record + 4; ++i) {
        finish_wide<F, Bias>(c, side, w, t, 16 * i, acc + 8 * i);
        finish_wide<F, Bias>(c, side, w, t, 16 * i + 8, acc + 8 * i + 4);
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

template <Format F, bool Curve, bool Direct>
__device__ __forceinline__ void consume_wide(const GemmArgs& args, const Consumer& c) {
  WideRing ring;
  bool staging_busy = false;
  std::uint32_t terms_phase = 0;
  ItemReader<kWideTokens, true> items(c.shared, c.base, c.lane == 0, true);
  for (WorkItem w; items.next(w);) {
    const GemmSide& side = args.sides[w.side];
    const bool terms = has_terms<F>(side);
    if (w.rows <= c.group * kWideGroup) {
      skip_stages<F>(c, ring, side.k_blocks);
      if (terms) ptx::mbarrier_wait(c.base + WideShared::kTermsFull, terms_phase);
    } else {
      WideAccumulators acc;
      multiply_wide<F>(c, ring, side, w, acc);
      if (terms) ptx::mbarrier_wait(c.base + WideShared::kTermsFull, terms_phase);
      if (w.side == 0) {
        finish_first_wide<F, Curve>(c, args, w, acc, staging_busy);
      } else if (side.bias == nullptr) {
        finish_second_wide<F, Direct, false>(c, args, w, acc, staging_busy);
      } else {
        finish_second_wide<F, Direct, true>(c, args, w, acc, staging_busy);
      }
    }
    if (!terms) continue;
    ptx::mbarrier_arrive(c.base + WideShared::kTermsEmpty);
    terms_phase ^= 1;
  }
  wait_staging_free_wide(c, staging_busy);
}

// Copies the staged rows of each warpgroup out and then counts them as ready. One warp.
template <Format F>
__device__ __forceinline__ void store_intermediate_wide(const GemmArgs& args, const unsigned char* shared,
                                                        std::uint32_t base, bool leader, bool staged) {
  constexpr int kBlocks = F == Format::bf16 ? 2 : 1;
  ItemReader<kWideTokens, true> items(shared, base, leader, true);
  for (WorkItem w; items.next(w);) {
    if (w.side == 1 || !staged || w.rows == 0) continue;
    for (std::int32_t group = 0; group < 2; ++group) {
      const std::int32_t rows = min(w.rows - group * kWideGroup, kWideGroup);
      if (rows > 0) ptx::barrier_sync(kWideStaged + group, kWideStoringThreads);
      if (leader && rows > 0) {
        const std::uint32_t bytes = (rows + kRowGroup - 1) / kRowGroup * 1024;
        for (int b = 0; b < kBlocks; ++b) {
          const std::int64_t kb = w.row_tile * kBlocks + b;
          if (kb >= args.sides[1].k_blocks) break;
          ptx::bulk_store(args.h + (kb * args.padded_rows + w.first_row + group * kWideGroup) * kBlockBytes,
                          base + wide_staging(group, b), bytes);
        }
        ptx::bulk_commit();
        ptx::bulk_wait_read();
      }
      __syncwarp();
      if (rows > 0) ptx::barrier_arrive(kWideStagingFree + group, kWideStoringThreads);
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
