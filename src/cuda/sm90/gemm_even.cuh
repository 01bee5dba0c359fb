// Consumers of the expert GEMM kernel for many rows an expert (gemm_even_loop.cuh): what becomes of the sums, and the
// roles of the kernel that use both. Not in fp8_block (gemm_wide.cuh).
//
// A warpgroup has 128 packed rows of the tile, 64 features of the intermediate. A thread has one feature of each of two
// records, and two tokens of each group of 8.
#pragma once

#include "cuda/sm90/gemm_even_loop.cuh"

namespace sluice::cuda::sm90 {

inline constexpr int kEvenAtOnce = 4;  // groups of token rows that are finished together

// Scales (fp8_tensor) and biases of the packed rows of a thread, from shared memory.
template <Format F>
__device__ __forceinline__ RowTerms even_terms(const Consumer& c, const GemmSide& side) {
  RowTerms t;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t row = (2 * c.group + m) * kRecordRows + c.warp * 16 + (c.lane >> 2) + 8 * half;
      const auto* terms = reinterpret_cast<const float*>(c.shared + LargeShared::kTerms) + row;
      if constexpr (F == Format::fp8_tensor) t.scale[m][half] = *terms;
      t.bias[m][half] = side.bias != nullptr ? terms[LargeShared::kTermsEach / 4] : 0.0f;
    }
  }
  return t;
}

// Of tokens 8 j + 2 (lane % 4) + {0, 1}.
template <Format F>
__device__ __forceinline__ float2 even_token_scales(const Consumer& c, const GemmSide& side, int j) {
  if constexpr (F != Format::fp8_tensor) return make_float2(1.0f, 1.0f);
  if (side.image_scale == nullptr) return make_float2(side.image_static_scale, side.image_static_scale);
  return *reinterpret_cast<const float2*>(c.shared + LargeShared::kTokenTerms + 32 * j + 8 * (c.lane & 3));
}

template <Format F, bool Bias>
__device__ __forceinline__ float finish_even(float v, float token, float row, float bias) {
  if constexpr (F == Format::fp8_tensor) v = __fmul_rn(__fmul_rn(v, token), row);
  return Bias ? v + bias : v;
}

// acc[m][4 j + i] becomes the activated value of feature 32 m + 8 warp + lane / 4 and token 8 j + 2 (lane % 4) + i.
template <Format F, bool Bias, typename Activation>
__device__ __forceinline__ void activate_even(const Consumer& c, const GemmSide& side, std::int32_t groups,
                                              const Activation& activated, EvenAccumulators& acc) {
  const RowTerms terms = even_terms<F>(c, side);
#pragma unroll
  for (int first = 0; first < kLargeTokens / kRowGroup; first += kEvenAtOnce) {
    if (first >= groups) break;
#pragma unroll
    for (int j = first; j < first + kEvenAtOnce; ++j) {
      const float2 x = even_token_scales<F>(c, side, j);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float token = i == 0 ? x.x : x.y;
          float& d = acc[m][4 * j + i];
          d = activated(finish_even<F, Bias>(d, token, terms.scale[m][0], terms.bias[m][0]),
                        finish_even<F, Bias>(acc[m][4 * j + 2 + i], token, terms.scale[m][1], terms.bias[m][1]));
        }
      }
    }
  }
}

// The branch is out here so that values do not wait for each other.
template <Format F, bool Curve>
__device__ __forceinline__ void activate_even(const Consumer& c, const GemmArgs& args, std::int32_t groups,
                                              EvenAccumulators& acc) {
  if (Curve && args.curve.plain && args.sides[0].bias == nullptr) {
    activate_even<F, false>(
        c, args.sides[0], groups, [](float gate, float up) { return plain_curve(gate, up); }, acc);
  } else if (Curve && args.curve.clamped) {
    activate_even<F, true>(
        c, args.sides[0], groups, [&](float gate, float up) { return clamped_curve(args.curve, gate, up); }, acc);
  } else {
    activate_even<F, true>(
        c, args.sides[0], groups, [&](float gate, float up) { return activation<Curve>(args, gate, up); }, acc);
  }
}

// Staging area of a warpgroup: rows of 128 bytes (fp8 in FC1: 64) of the token rows.
__device__ __forceinline__ std::uint32_t even_staging(std::uint32_t base, std::int32_t group) {
  return base + LargeShared::kStagingAt + group * kLargeTokens * kBlockBytes;
}

// FC1: as the rows lie in the image, in fp8 the half of them that the warpgroup has.
template <Format F>
__device__ __forceinline__ void stage_first_even(const Consumer& c, float inverse, std::int32_t groups,
                                                 const EvenAccumulators& acc) {
  const std::uint32_t to = even_staging(c.base, c.group), matrix = c.lane >> 3, row = c.lane & 7;
  if constexpr (F == Format::bf16) {
    const std::uint32_t chunk = 4 * (matrix >> 1) + c.warp;
    const std::uint32_t at = to + (8 * (matrix & 1) + row) * kBlockBytes + ((chunk ^ row) * 16);
#pragma unroll
    for (int j = 0; j < kLargeTokens / kRowGroup; j += 2) {
      if (j % kEvenAtOnce == 0 && j >= groups) break;
      const float *a = acc[0] + 4 * j, *b = acc[1] + 4 * j;
      ptx::store_matrix_transposed(at + j * kRowGroup * kBlockBytes, ptx::pack_bf16(a[0], a[1]),
                                   ptx::pack_bf16(a[4], a[5]), ptx::pack_bf16(b[0], b[1]), ptx::pack_bf16(b[4], b[5]));
    }
  } else {
    const std::uint32_t at = to + (8 * matrix + row) * 64 + ((c.warp ^ (row & 3)) * 16);
#pragma unroll
    for (int first = 0; first < kLargeTokens / kRowGroup; first += 4) {
      if (first >= groups) break;
      std::uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float *a = acc[0] + 4 * (first + i), *b = acc[1] + 4 * (first + i);
        word[i] = ptx::pack_e4m3(a[0] * inverse, b[0] * inverse) | ptx::pack_e4m3(a[1] * inverse, b[1] * inverse) << 16;
      }
      ptx::store_matrix_transposed(at + first * kRowGroup * 64, word[0], word[1], word[2], word[3]);
    }
  }
}

template <Format F, bool Curve>
__device__ __forceinline__ void finish_first_even(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                                  EvenAccumulators& acc, bool& staging_busy) {
  const std::int32_t groups = (w.rows + kRowGroup - 1) / kRowGroup;
  activate_even<F, Curve>(c, args, groups, acc);
  if (F == Format::fp8_tensor && args.h_f32 != nullptr) return store_unquantised<kLargeTokens>(c, args, w, acc);
  const float inverse = F == Format::fp8_tensor ? __fdiv_rn(1.0f, args.h_static_scale) : 1.0f;
  wait_staging_free_large(c, staging_busy);
  stage_first_even<F>(c, inverse, groups, acc);
  if constexpr (F == Format::bf16) ptx::fence_async_shared();
  ptx::barrier_arrive(kLargeStaged + c.group, kLargeStoringThreads);
  staging_busy = true;
}

// Features of a record of all token rows, to the staging area.
template <Format F, bool Bias>
__device__ __forceinline__ void stage_second_even(const Consumer& c, const GemmSide& side, const RowTerms& terms, int m,
                                                  std::int32_t groups, const float* acc) {
  const std::uint32_t matrix = c.lane >> 3, row = c.lane & 7, chunk = 2 * c.warp + (matrix & 1);
  const std::uint32_t at =
      even_staging(c.base, c.group) + (8 * (matrix >> 1) + row) * kBlockBytes + ((chunk ^ row) * 16);
#pragma unroll
  for (int first = 0; first < kLargeTokens / kRowGroup; first += 2) {
    if (first % kEvenAtOnce == 0 && first >= groups) break;
    const float2 scales[2] = {even_token_scales<F>(c, side, first), even_token_scales<F>(c, side, first + 1)};
    std::uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2& x = scales[i / 2];
      const float* d = acc + 4 * first + 2 * i;
      word[i] = ptx::pack_bf16(finish_even<F, Bias>(d[0], x.x, terms.scale[m][i % 2], terms.bias[m][i % 2]),
                               finish_even<F, Bias>(d[1], x.y, terms.scale[m][i % 2], terms.bias[m][i % 2]));
    }
    ptx::store_matrix_transposed(at + first * kRowGroup * kBlockBytes, word[0], word[1], word[2], word[3]);
  }
}

// Where a thread finds and puts 16 bytes of every 16th token row: 64 staged features are 8 lanes.
struct EvenCopy {
  std::int32_t first, rows, feature;  // first row, rows from there on, 0 where there are no such features
  const unsigned char* from;
};

__device__ __forceinline__ EvenCopy even_copy(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                              std::int32_t first_feature) {
  const std::int32_t thread = c.warp * 32 + c.lane, chunk = thread & 7, first = thread >> 3;
  const std::int32_t feature = first_feature + chunk * 8;
  return {first, feature < args.hidden ? w.rows - first : 0, feature,
          c.shared + even_staging(0, c.group) + first * kBlockBytes + ((chunk ^ (first & 7)) * 16)};
}

// To the slot rows or the output, whose rows and weights are looked up four at a time, as registers allow.
template <bool Direct>
__device__ __forceinline__ void copy_rows_even(const GemmArgs& args, const WorkItem& w, const EvenCopy& copy) {
  constexpr int kAhead = Direct ? 4 : 8;
#pragma unroll
  for (int p0 = 0; p0 < 8; p0 += kAhead) {
    RowTarget to[kAhead];
    uint4 v[kAhead];
#pragma unroll
    for (int p = 0; p < kAhead; ++p) {
      const std::int32_t row = 16 * (p0 + p);
      v[p] = *reinterpret_cast<const uint4*>(copy.from + row * kBlockBytes);
      if (row < copy.rows) to[p] = row_target<Direct>(args, w.first_row + copy.first + row);
    }
#pragma unroll
    for (int p = 0; p < kAhead; ++p) {
      if (16 * (p0 + p) < copy.rows) store_features<Direct>(args, to[p], copy.feature, v[p]);
    }
  }
}

template <Format F, bool Direct, bool Bias>
__device__ __forceinline__ void finish_second_even(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                                   EvenAccumulators& acc, bool& staging_busy) {
  const GemmSide& side = args.sides[1];
  const RowTerms terms = even_terms<F>(c, side);
  const std::int32_t groups = (w.rows + kRowGroup - 1) / kRowGroup, records = even_records(side, w, c.group);
  wait_staging_free_large(c, staging_busy);
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    if (m >= records) break;
    ptx::barrier_sync(kLargeWarpgroup + c.group, 128);  // the rows before these have been copied
    stage_second_even<F, Bias>(c, side, terms, m, groups, acc[m]);
    ptx::barrier_sync(kLargeWarpgroup + c.group, 128);
    const EvenCopy copy = even_copy(c, args, w, (w.row_tile * kTileRecords + 2 * c.group + m) * kRecordRows);
    copy_rows_even<Direct>(args, w, copy);
    __syncwarp();  // or the compiler takes the warp for divided from here on, and keeps descriptors in vector registers
  }
}

template <Format F, bool Curve, bool Direct>
__device__ __forceinline__ void consume_even(const GemmArgs& args, const Consumer& c) {
  LargeRing ring;
  bool staging_busy = false;
  std::uint32_t terms_phase = 0;
  ItemReader<kLargeTokens, true> items(c.base, true);
  for (WorkItem w; items.next(w);) {
    const GemmSide& side = args.sides[w.side];
    const bool terms = has_terms<F>(side);
    if (w.rows == 0 || even_records(side, w, c.group) == 0) {
      skip_stages<F>(c, ring, side.k_blocks);
      if (terms) ptx::mbarrier_wait(c.base + LargeShared::kTermsFull, terms_phase);
    } else {
      EvenAccumulators acc;
      multiply_even<F>(c, ring, side, w, acc);
      if (terms) ptx::mbarrier_wait(c.base + LargeShared::kTermsFull, terms_phase);
      if (w.side == 0) {
        finish_first_even<F, Curve>(c, args, w, acc, staging_busy);
      } else if (side.bias == nullptr) {
        finish_second_even<F, Direct, false>(c, args, w, acc, staging_busy);
      } else {
        finish_second_even<F, Direct, true>(c, args, w, acc, staging_busy);
      }
    }
    if (!terms) continue;
    ptx::mbarrier_arrive(c.base + LargeShared::kTermsEmpty);
    terms_phase ^= 1;
  }
  wait_staging_free_large(c, staging_busy);
}

// The staged rows of a warpgroup to the image. One warp. bf16 has whole rows in one piece; half rows of fp8 are too
// many pieces for bulk copies.
template <Format F>
__device__ __forceinline__ void copy_out_even(const GemmArgs& args, const WorkItem& w, const unsigned char* shared,
                                              std::uint32_t base, std::int32_t group) {
  const std::int32_t lane = ptx::this_lane();  // asked for anew: few registers
  if constexpr (F == Format::bf16) {
    const std::int64_t kb = 2 * w.row_tile + group;
    if (lane == 0) {
      ptx::bulk_store(args.h + (kb * args.padded_rows + w.first_row) * kBlockBytes, even_staging(base, group),
                      (w.rows + kRowGroup - 1) / kRowGroup * kRowGroup * kBlockBytes);
      ptx::bulk_commit();
      ptx::bulk_wait_read();
    }
  } else {
    const std::int32_t first = lane >> 2;  // and every 8th row from there; their halves lie alike
    const unsigned char* from = shared + even_staging(0, group) + lane * 16;
    const std::int64_t row = std::int64_t{w.row_tile} * args.padded_rows + w.first_row + first;
    std::uint8_t* to = args.h + row * kBlockBytes + ((group ^ (first >> 2 & 1)) * 64) + (lane & 3) * 16;
#pragma unroll 4
    for (std::int32_t i = first; i < w.rows; i += 8, from += 8 * 64, to += 8 * kBlockBytes) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    }
  }
}

// Copies the staged rows of each warpgroup out and then counts them as ready. One warp.
template <Format F>
__device__ __forceinline__ void store_intermediate_even(const GemmArgs& args, const unsigned char* shared,
                                                        std::uint32_t base, bool leader, bool staged) {
  ItemReader<kLargeTokens, true> items(base, true);
  for (WorkItem w; items.next(w);) {
    if (w.side == 1 || !staged || w.rows == 0) continue;
    for (std::int32_t group = 0; group < 2; ++group) {
      const bool present = even_records(args.sides[0], w, group) > 0;
      if (present) {
        ptx::barrier_sync(kLargeStaged + group, kLargeStoringThreads);
        copy_out_even<F>(args, w, shared, base, group);
        __syncwarp();
        ptx::barrier_arrive(kLargeStagingFree + group, kLargeStoringThreads);
      }
      if (leader) {
        if (F == Format::bf16 && present) {
          ptx::bulk_wait();
          ptx::fence_async_global();
        }
        ptx::add_release(args.routes.ready + w.token_tile, 1);
      }
      __syncwarp();
    }
  }
}

}  // namespace sluice::cuda::sm90
