// What happens to the accumulators of the expert GEMM kernel: FC1 activates and requantises into the image that FC2
// reads, FC2 writes slot rows.
//
// Called by the consumer warpgroups, all 256 threads. Tiles of the intermediate leave through a staging area in shared
// memory that a storing warp copies out; barriers with fixed numbers order the two.
#pragma once

#include "cuda/sm90/activation.cuh"
#include "cuda/sm90/gemm_mainloop.cuh"

namespace sluice::cuda::sm90 {

// Named barriers.
inline constexpr std::uint32_t kBarrierConsumers = 1;
inline constexpr std::uint32_t kBarrierStaged = 2;       // consumers > storing warp
inline constexpr std::uint32_t kBarrierStagingFree = 3;  // storing warp > consumers
inline constexpr std::uint32_t kBarrierGroup = 4;        // and 5: one warpgroup
inline constexpr std::uint32_t kStoringThreads = kConsumers + 32;

inline constexpr float kE4m3Max = 448.0f;

// Scale and bias of the packed rows of a thread: [record][row r, row r + 8].
struct RowTerms {
  float scale[2][2];
  float bias[2][2];
};

// First packed row of record m of the warpgroup.
__device__ __forceinline__ std::int32_t packed_row(const Consumer& c, const GemmSide& side, const WorkItem& w, int m) {
  return (w.row_tile * side.tile_records + c.group * (side.tile_records / 2) + m) * kRecordRows;
}

template <Format F>
__device__ __forceinline__ RowTerms load_row_terms(const Consumer& c, const GemmSide& side, const WorkItem& w) {
  RowTerms t;
  const std::int64_t rows = static_cast<std::int64_t>(side.records) * kRecordRows;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t row = packed_row(c, side, w, m) + c.warp * 16 + (c.lane >> 2) + 8 * half;
      const bool present = row < rows;
      t.bias[m][half] = present && side.bias != nullptr ? __ldg(side.bias + w.expert * rows + row) : 0.0f;
      if constexpr (F == Format::fp8_tensor) {
        t.scale[m][half] = present ? __ldg(side.row_scale + w.expert * rows + row) : 0.0f;
      }
    }
  }
  return t;
}

// Scales (fp8_tensor) and bias on one accumulator.
template <Format F>
__device__ __forceinline__ float finish(float acc, float token_scale, float row_scale, float bias) {
  if constexpr (F == Format::fp8_tensor) acc = __fmul_rn(__fmul_rn(acc, token_scale), row_scale);
  return acc + bias;
}

// Of tokens 8 j + 2 (lane % 4) + {0, 1}. A plain load, as of all that the routing kernel writes: it may still do so
// when this kernel starts, and what a read-only load sees then is not defined.
template <Format F>
__device__ __forceinline__ float2 token_scales(const Consumer& c, const GemmSide& side, const WorkItem& w, int j) {
  if constexpr (F != Format::fp8_tensor) return make_float2(1.0f, 1.0f);
  if (side.image_scale == nullptr) return make_float2(side.image_static_scale, side.image_static_scale);
  return *reinterpret_cast<const float2*>(side.image_scale + w.first_row + 8 * j + 2 * (c.lane & 3));
}

// acc[m][4 j + i] becomes the activated value of feature 32 m + 8 warp + lane / 4 and token 8 j + 2 (lane % 4) + i.
template <int NT, Format F, bool Curve>
__device__ __forceinline__ void activate(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                         const RowTerms& terms, Accumulators<NT>& acc) {
  const std::int32_t groups = (w.rows + kRowGroup - 1) / kRowGroup;
#pragma unroll
  for (int j = 0; j < NT / 8; ++j) {
    if (j >= groups) break;
    const float2 x = token_scales<F>(c, args.sides[0], w, j);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float token = i == 0 ? x.x : x.y;
        const float gate = finish<F>(acc[m][4 * j + i], token, terms.scale[m][0], terms.bias[m][0]);
        const float up = finish<F>(acc[m][4 * j + 2 + i], token, terms.scale[m][1], terms.bias[m][1]);
        acc[m][4 * j + i] = activation<Curve>(args, gate, up);
      }
    }
  }
}

__device__ __forceinline__ float finite_magnitude(float v) {
  const float magnitude = fabsf(v);
  return magnitude <= 3.402823466e38f ? magnitude : 0.0f;
}

// Scales of the 128 features of this tile for each token: 1 / scale to shared memory, scale to global memory.
template <int NT>
__device__ __forceinline__ void group_scales(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                             const Accumulators<NT>& acc) {
  using S = SharedLayout<NT>;
  float* amax = reinterpret_cast<float*>(c.shared + S::kAmax);
  const std::int32_t groups = (w.rows + kRowGroup - 1) / kRowGroup;
#pragma unroll
  for (int j = 0; j < NT / 8; ++j) {
    if (j >= groups) break;
    float2 v = make_float2(fmaxf(finite_magnitude(acc[0][4 * j]), finite_magnitude(acc[1][4 * j])),
                           fmaxf(finite_magnitude(acc[0][4 * j + 1]), finite_magnitude(acc[1][4 * j + 1])));
#pragma unroll
    for (int bit = 4; bit < 32; bit *= 2) {
      v.x = fmaxf(v.x, __shfl_xor_sync(0xffffffffu, v.x, bit));
      v.y = fmaxf(v.y, __shfl_xor_sync(0xffffffffu, v.y, bit));
    }
    if (c.lane < 4) {
      *reinterpret_cast<float2*>(amax + (c.group * 4 + c.warp) * NT + 8 * j + 2 * c.lane) = v;
    }
  }
  ptx::barrier_sync(kBarrierConsumers, kConsumers);
  const std::int32_t token = c.group * 128 + c.warp * 32 + c.lane;
  if (token < groups * kRowGroup) {
    float largest = amax[token];
#pragma unroll
    for (int warp = 1; warp < 8; ++warp) largest = fmaxf(largest, amax[warp * NT + token]);
    const float scale = __fdiv_rn(fmaxf(largest, 1e-10f), kE4m3Max);
    reinterpret_cast<float*>(c.shared + S::kInverse)[token] = __fdiv_rn(1.0f, scale);
    args.h_scale[w.row_tile * args.padded_rows + w.first_row + token] = scale;
  }
  ptx::barrier_sync(kBarrierConsumers, kConsumers);
}

template <int NT, Format F>
__device__ __forceinline__ void stage_fp8(const Consumer& c, const GemmArgs& args, const Accumulators<NT>& acc) {
  using S = SharedLayout<NT>;
  const float* inverse = reinterpret_cast<const float*>(c.shared + S::kInverse) + 2 * (c.lane & 3);
  const float static_inverse = F == Format::fp8_tensor ? __fdiv_rn(1.0f, args.h_static_scale) : 0.0f;
  constexpr int kStep = NT == 8 ? 1 : NT == 16 ? 2 : 4;
#pragma unroll
  for (int j0 = 0; j0 < NT / 8; j0 += kStep) {
    std::uint32_t packed[kStep];
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      const int j = j0 + i;
      float2 f = make_float2(static_inverse, static_inverse);
      if constexpr (F == Format::fp8_block) f = *reinterpret_cast<const float2*>(inverse + 8 * j);
      packed[i] = ptx::pack_e4m3(acc[0][4 * j] * f.x, acc[1][4 * j] * f.x) |
                  ptx::pack_e4m3(acc[0][4 * j + 1] * f.y, acc[1][4 * j + 1] * f.y) << 16;
    }
    const std::int32_t matrix = (c.lane / 8) & (kStep - 1);
    const std::int32_t token = 8 * (j0 + matrix) + (c.lane & 7);
    const std::uint32_t chunk = (4 * c.group + c.warp) ^ (token & 7);
    const std::uint32_t to = c.base + S::kStagingAt + token * kBlockBytes + chunk * 16;
    if constexpr (kStep == 1) {
      ptx::store_matrix_transposed(to, packed[0]);
    } else if constexpr (kStep == 2) {
      ptx::store_matrix_transposed(to, packed[0], packed[1]);
    } else {
      ptx::store_matrix_transposed(to, packed[0], packed[1], packed[2], packed[3]);
    }
  }
}

// Values (m, token 8 j + ..) of two halves of 8 features each, to chunks `low` and `high` of a staged block.
template <int NT>
__device__ __forceinline__ void stage_bf16(const Consumer& c, std::uint32_t block, int low, int high, int j,
                                           std::uint32_t a, std::uint32_t b) {
  const std::int32_t token = 8 * j + (c.lane & 7);
  const std::int32_t chunk = (c.lane & 8) == 0 ? low : high;
  ptx::store_matrix_transposed(block + token * kBlockBytes + ((chunk ^ (token & 7)) * 16), a, b);
}

template <int NT>
__device__ __forceinline__ std::uint32_t staged_block(const Consumer& c) {
  return c.base + SharedLayout<NT>::kStagingAt + c.group * NT * kBlockBytes;
}

// fp8 per token row without a static scale: the activated values as they are; a kernel of its own quantises them.
template <int NT>
__device__ __forceinline__ void store_unquantised(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                                  const Accumulators<NT>& acc) {
#pragma unroll
  for (int j = 0; j < NT / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const std::int32_t token = 8 * j + 2 * (c.lane & 3) + (e & 1);
      const std::int32_t feature = w.row_tile * 128 + c.group * 64 + (e / 2) * 32 + c.warp * 8 + (c.lane >> 2);
      if (token < w.rows) args.h_f32[(w.first_row + token) * args.h_f32_stride + feature] = acc[e / 2][4 * j + (e & 1)];
    }
  }
}

// Straight from registers to the image, two bytes at a time; each warpgroup then counts its part as ready.
template <int NT, Format F>
__device__ __forceinline__ void store_direct(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                             const Accumulators<NT>& acc) {
  const float* inverse = reinterpret_cast<const float*>(c.shared + SharedLayout<NT>::kInverse);
  const float static_inverse = F == Format::fp8_tensor ? __fdiv_rn(1.0f, args.h_static_scale) : 0.0f;
  const bool half = args.sides[0].tile_records < kTileRecords;
  const std::int64_t kb = F == Format::bf16 && !half ? w.row_tile * 2 + c.group : w.row_tile;

  const std::int32_t within = 2 * (c.lane >> 2);
#pragma unroll
  for (int e = 0; e < NT / 4; ++e) {
    const std::int32_t token = 8 * (e / 2) + 2 * (c.lane & 3) + e % 2;
    const std::int64_t row = w.first_row + token;
    const float low = acc[0][4 * (e / 2) + e % 2];
    const float high = acc[1][4 * (e / 2) + e % 2];
    if (token >= w.rows || kb >= args.sides[1].k_blocks) continue;
    if constexpr (F == Format::bf16) {  // a half tile has one record a warpgroup and one K block
      const std::uint32_t pair = ptx::pack_bf16(low, high);
      const std::int32_t chunk = half ? 4 * c.group + c.warp : c.warp;
      const std::int64_t at = image_offset(kb, row, chunk, args.padded_rows) + within;
      *reinterpret_cast<std::uint16_t*>(args.h + at) = static_cast<std::uint16_t>(pair);
      if (half) continue;
      const std::int64_t at_high = image_offset(kb, row, 4 + c.warp, args.padded_rows) + within;
      *reinterpret_cast<std::uint16_t*>(args.h + at_high) = static_cast<std::uint16_t>(pair >> 16);
    } else {
      const float f = F == Format::fp8_block ? inverse[token] : static_inverse;
      const std::int64_t at = image_offset(kb, row, 4 * c.group + c.warp, args.padded_rows) + within;
      *reinterpret_cast<std::uint16_t*>(args.h + at) = static_cast<std::uint16_t>(ptx::pack_e4m3(low * f, high * f));
    }
  }
  ptx::barrier_sync(kBarrierGroup + c.group, 128);
  if (c.warp == 0 && c.lane == 0) ptx::add_release(args.routes.ready + w.token_tile, 1);
}

// `staging_busy`: the storing warp still owes a signal that the staging area may be overwritten.
__device__ __forceinline__ void wait_staging_free(bool& staging_busy) {
  if (staging_busy) ptx::barrier_sync(kBarrierStagingFree, kStoringThreads);
  staging_busy = false;
}

template <int NT, Format F, bool Curve>
__device__ __forceinline__ void finish_first(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                             const RowTerms& terms, Accumulators<NT>& acc, bool& staging_busy) {
  activate<NT, F, Curve>(c, args, w, terms, acc);
  if (F == Format::fp8_tensor && args.h_f32 != nullptr) return store_unquantised<NT>(c, args, w, acc);
  if constexpr (F == Format::fp8_block) group_scales<NT>(c, args, w, acc);
  if constexpr (SharedLayout<NT>::kDirect) return store_direct<NT, F>(c, args, w, acc);
  wait_staging_free(staging_busy);
  if constexpr (F == Format::bf16) {
#pragma unroll
    for (int j = 0; j < NT / 8; ++j) {
      stage_bf16<NT>(c, staged_block<NT>(c), c.warp, 4 + c.warp, j, ptx::pack_bf16(acc[0][4 * j], acc[0][4 * j + 1]),
                     ptx::pack_bf16(acc[1][4 * j], acc[1][4 * j + 1]));
    }
  } else {
    stage_fp8<NT, F>(c, args, acc);
  }
  ptx::fence_async_shared();
  ptx::barrier_arrive(kBarrierStaged, kStoringThreads);
  staging_busy = true;
}

// Two bf16 with the bits that the finalise kernel gives a sum of one slot.
__device__ __forceinline__ std::uint32_t weighted_pair(std::uint32_t pair, float weight) {
  return ptx::pack_bf16(__fadd_rn(0.0f, __fmul_rn(weight, __uint_as_float(pair << 16))),
                        __fadd_rn(0.0f, __fmul_rn(weight, __uint_as_float(pair & 0xffff0000u))));
}

// The output row of a padded row, and what it is multiplied by first. `Direct` is a parameter since the other path is
// the one that counts for large batches.
struct RowTarget {
  std::int32_t row;
  float weight;
};

template <bool Direct>
__device__ __forceinline__ RowTarget row_target(const GemmArgs& args, std::int32_t row) {
  if constexpr (!Direct) return {row, 1.0f};
  const std::int32_t token = args.direct.row_token[row];
  return {token, args.direct.weights != nullptr ? __ldg(args.direct.weights + token) : 1.0f};
}

template <bool Direct>
__device__ __forceinline__ void store_features(const GemmArgs& args, const RowTarget& to, std::int32_t feature,
                                               uint4 v) {
  if constexpr (Direct) {
    v = make_uint4(weighted_pair(v.x, to.weight), weighted_pair(v.y, to.weight), weighted_pair(v.z, to.weight),
                   weighted_pair(v.w, to.weight));
    auto* out = static_cast<std::uint16_t*>(args.direct.out) + to.row * args.direct.row_stride;
    *reinterpret_cast<uint4*>(out + feature) = v;
  } else {
    *reinterpret_cast<uint4*>(args.slot_rows + std::int64_t{to.row} * args.hidden + feature) = v;
  }
}

// One staged record (64 features) of a warpgroup to the slot rows, 16 bytes a thread.
template <int NT, bool Direct>
__device__ __forceinline__ void copy_slot_rows(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                               std::int32_t first_feature) {
  const std::int32_t thread = c.warp * 32 + c.lane;
  const std::int32_t chunk = thread & 7;
  const std::int32_t feature = first_feature + chunk * 8;
  const unsigned char* block = c.shared + SharedLayout<NT>::kStagingAt + c.group * NT * kBlockBytes;
  if (feature >= args.hidden) return;
  for (std::int32_t token = thread / 8; token < w.rows; token += 16) {
    const uint4 v = *reinterpret_cast<const uint4*>(block + token * kBlockBytes + ((chunk ^ (token & 7)) * 16));
    store_features<Direct>(args, row_target<Direct>(args, w.first_row + token), feature, v);
  }
}

template <int NT, Format F>
__device__ __forceinline__ void finish_second(const Consumer& c, const GemmArgs& args, const WorkItem& w,
                                              const RowTerms& terms, Accumulators<NT>& acc, bool& staging_busy) {
  wait_staging_free(staging_busy);
  const std::int32_t groups = (w.rows + kRowGroup - 1) / kRowGroup;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    if (m >= args.sides[1].tile_records / 2) break;
#pragma unroll
    for (int j = 0; j < NT / 8; ++j) {
      if (j >= groups) break;
      const float2 x = token_scales<F>(c, args.sides[1], w, j);
      const float* d = &acc[m][4 * j];
      stage_bf16<NT>(c, staged_block<NT>(c), 2 * c.warp, 2 * c.warp + 1, j,
                     ptx::pack_bf16(finish<F>(d[0], x.x, terms.scale[m][0], terms.bias[m][0]),
                                    finish<F>(d[1], x.y, terms.scale[m][0], terms.bias[m][0])),
                     ptx::pack_bf16(finish<F>(d[2], x.x, terms.scale[m][1], terms.bias[m][1]),
                                    finish<F>(d[3], x.y, terms.scale[m][1], terms.bias[m][1])));
    }
    ptx::barrier_sync(kBarrierGroup + c.group, 128);
    if (args.direct.out != nullptr) {
      copy_slot_rows<NT, true>(c, args, w, packed_row(c, args.sides[1], w, m));
    } else {
      copy_slot_rows<NT, false>(c, args, w, packed_row(c, args.sides[1], w, m));
    }
    ptx::barrier_sync(kBarrierGroup + c.group, 128);
  }
}

}  // namespace sluice::cuda::sm90
