// The other half of R (route.h): rows of GEMM1 input and their codes, and how one warp writes a K block of them. Used
// by the kernel for a few routes, and by route_write.cuh for more.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>

#include "cuda/route.h"

namespace sluice::cuda {

inline constexpr float kE4m3Largest = 448.0f;
inline constexpr float kGroupAmaxFloor = 1e-10f;

// Magnitude as amax counts it: NaN does not count, infinity is the largest number.
__device__ inline float counted_magnitude(float v) {
  const float m = fabsf(v);
  return m != m ? 0.0f : fminf(m, FLT_MAX);
}

// Saturating, ties to even, exact division; a NaN keeps its sign, as in numerics/fp8.h.
__device__ inline std::uint32_t e4m3_code(float value, float scale) {
  if (value != value) return (__float_as_uint(value) >> 31) != 0u ? 0xFFu : 0x7Fu;
  const float finite = fminf(fmaxf(value, -FLT_MAX), FLT_MAX);
  return __nv_cvt_float_to_fp8(__fdiv_rn(finite, scale), __NV_SATFINITE, __NV_E4M3);
}

// Whether the reciprocal may be taken for numbers up to `magnitude`: neither a quotient nor the rest of its
// check leaves the range of fp32. False for infinity and NaN.
__device__ inline bool reciprocal_is_exact(float magnitude, float scale, float inverse) {
  return magnitude < FLT_MAX && magnitude * inverse < 0x1p60f && scale > 0x1p-90f && scale < 0x1p100f;
}

// Four codes of bf16 numbers, the first in the lowest byte; `inverse` = 1 / scale. The quotient is corrected by its
// rest once, which gives the bits of the division for every bf16 number and fp32 scale (all 2^30 pairs of significands
// were compared); a zero would lose its sign.
__device__ inline std::uint32_t e4m3_by_reciprocal(const float (&v)[4], float scale, float inverse) {
  float q[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float first = __fmul_rn(v[i], inverse);
    q[i] = copysignf(__fmaf_rn(__fmaf_rn(-first, scale, v[i]), inverse, first), v[i]);
  }
  const auto low = __nv_cvt_float2_to_fp8x2(make_float2(q[0], q[1]), __NV_SATFINITE, __NV_E4M3);
  const auto high = __nv_cvt_float2_to_fp8x2(make_float2(q[2], q[3]), __NV_SATFINITE, __NV_E4M3);
  return static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 16;
}

// By division. Rare, and kept out of the way of the code that runs always, as is more of that kind: the routing kernels
// run from cold instruction caches.
__device__ inline __noinline__ std::uint32_t e4m3_by_division(float v0, float v1, float v2, float v3, float scale) {
  return e4m3_code(v0, scale) | e4m3_code(v1, scale) << 8 | e4m3_code(v2, scale) << 16 | e4m3_code(v3, scale) << 24;
}

__device__ inline float warp_max(float v) {
  for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, d));
  return v;
}

// One hidden row as floats, after the routing weight; zeros behind its width.
struct InputRow {
  const __nv_bfloat16* data = nullptr;
  std::int64_t width = 0;
  float weight = 1.0f;
  bool weighted = false;
  bool wide = false;  // can be read 8 bytes at a time

  __device__ InputRow(const RouteArgs& a, std::int64_t t)
      : data(static_cast<const __nv_bfloat16*>(a.hidden) + t * a.hidden_row_stride),
        width(a.width),
        weighted(a.input_weights != nullptr),
        wide(a.hidden_row_stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(a.hidden) % 8 == 0) {
    if (weighted) weight = a.input_weights[t];
  }

  __device__ void load4(std::int64_t column, __nv_bfloat16 (&x)[4]) const {
    if (wide && column + 4 <= width) {
      *reinterpret_cast<uint2*>(x) = *reinterpret_cast<const uint2*>(data + column);
    } else {
      for (int i = 0; i < 4; ++i) x[i] = column + i < width ? data[column + i] : __float2bfloat16(0.0f);
    }
    if (!weighted) return;
    for (int i = 0; i < 4; ++i) x[i] = __float2bfloat16_rn(__fmul_rn(weight, __bfloat162float(x[i])));
  }

  __device__ void load4(std::int64_t column, float (&v)[4]) const {
    __nv_bfloat16 x[4];
    load4(column, x);
    for (int i = 0; i < 4; ++i) v[i] = __bfloat162float(x[i]);
  }
};

// The scale of a whole row; one warp.
__device__ inline float dynamic_scale(const RouteArgs& a, const InputRow& x) {
  float amax = 0.0f;
#pragma unroll 4
  for (std::int64_t c = (threadIdx.x % 32) * 4; c < a.width; c += 128) {
    float v[4];
    x.load4(c, v);
    for (int i = 0; i < 4; ++i) amax = fmaxf(amax, counted_magnitude(v[i]));
  }
  amax = warp_max(amax);
  return amax == 0.0f ? 1.0f : fmaxf(__fdiv_rn(amax, kE4m3Largest), FLT_MIN);
}

// Byte `at` (0-127) of K block kb of padded row r.
__device__ inline std::uint8_t* image_at(const RouteArgs& a, std::int64_t kb, std::int32_t r, int at) {
  return a.image + sm90::image_offset(kb, r, at / 16, a.padded_rows) + at % 16;
}

// Zeros into `Count` columns of a skipped token's output. H is a multiple of 16.
template <int Count>
__device__ inline void write_no_output(const RouteArgs& a, std::int64_t token, std::int64_t column) {
  if (a.output == nullptr || column >= a.width) return;
  auto* to = reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(a.output) + token * a.output_row_stride + column);
#pragma unroll
  for (int i = 0; i < Count / 4; ++i) to[i] = make_uint2(0, 0);
}

// K block kb of a token, of which this lane holds v, into the padded row of each of its routes; one warp. row_of(s) is
// asked by all lanes.
template <class RowOf>
__device__ inline void write_fp8_block(const RouteArgs& a, const float (&v)[4], std::int64_t kb, float row_scale,
                                       RowOf row_of) {
  const int lane = threadIdx.x % 32;
  float scale = row_scale, amax = 0.0f;
  bool number = true;
  for (int i = 0; i < 4; ++i) {
    amax = fmaxf(amax, counted_magnitude(v[i]));
    number = number && v[i] == v[i];
  }
  if (a.form == InputForm::fp8_group) scale = __fdiv_rn(fmaxf(warp_max(amax), kGroupAmaxFloor), kE4m3Largest);
  const float inverse = __fdiv_rn(1.0f, scale);
  const std::uint32_t codes = number && reciprocal_is_exact(amax, scale, inverse)
                                  ? e4m3_by_reciprocal(v, scale, inverse)
                                  : e4m3_by_division(v[0], v[1], v[2], v[3], scale);
#pragma unroll 1
  for (std::int32_t s = 0; s < a.plan.top_k; ++s) {
    const std::int32_t r = row_of(s);
    if (r < 0) continue;
    *reinterpret_cast<std::uint32_t*>(image_at(a, kb, r, lane * 4)) = codes;
    if (lane != 0) continue;
    if (a.form == InputForm::fp8_group) a.scales[kb * a.padded_rows + r] = scale;
    if (a.form == InputForm::fp8_static && kb == 0) a.scales[r] = scale;
  }
}

// The same in bf16, where a warp takes two K blocks at once: 16 lanes of 8 bytes each. kb may lie behind the last.
template <class RowOf>
__device__ inline void write_bf16_block(const RouteArgs& a, const __nv_bfloat16 (&v)[4], std::int64_t kb,
                                        RowOf row_of) {
#pragma unroll 1
  for (std::int32_t s = 0; s < a.plan.top_k; ++s) {
    const std::int32_t r = row_of(s);
    if (r < 0 || kb >= a.k_blocks) continue;
    *reinterpret_cast<uint2*>(image_at(a, kb, r, threadIdx.x % 16 * 8)) = *reinterpret_cast<const uint2*>(v);
  }
}

// What a lane holds of unit `block` of a token.
__device__ inline std::int64_t bf16_block_of(std::int64_t block) { return 2 * block + threadIdx.x % 32 / 16; }
__device__ inline std::int64_t bf16_column(std::int64_t block) {
  return bf16_block_of(block) * 64 + threadIdx.x % 16 * 4;
}
__device__ inline std::int64_t fp8_column(std::int64_t block) { return block * 128 + threadIdx.x % 32 * 4; }

// Units of work are pairs of K blocks (bf16) or K blocks (fp8) of a token.
__device__ inline std::int64_t units_of_token(const RouteArgs& a) {
  return a.form == InputForm::bf16 ? (a.k_blocks + 1) / 2 : a.k_blocks;
}

}  // namespace sluice::cuda
