// Sixteen floats in two AVX2 registers. Same functions, with the same results up to fused multiply-add, as
// ops_vec_scalar.h, which documents them.
//
// Included by one unit only; internal linkage throughout.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace sluice::cpu {
namespace {

inline constexpr int kScorePanels = 1;
inline constexpr int kValueVecs = 1;

struct V {
  __m256 lo, hi;
};

inline __m256i lanes_below(int n) {  // all ones in the first n of 8 lanes
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline __m256i lanes_of(std::uint32_t mask) {  // all ones where the bit of the lane is set
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(mask)), bit), bit);
}
inline std::uint32_t bits(__m256 lo, __m256 hi) {
  return static_cast<std::uint32_t>(_mm256_movemask_ps(lo)) | static_cast<std::uint32_t>(_mm256_movemask_ps(hi)) << 8;
}

inline V broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline V load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline V load_part(const float* p, int n) {
  return {_mm256_maskload_ps(p, lanes_below(n)),
          n > 8 ? _mm256_maskload_ps(p + 8, lanes_below(n - 8)) : _mm256_setzero_ps()};
}
inline void store(float* p, V a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline void store_part(float* p, V a, int n) {
  _mm256_maskstore_ps(p, lanes_below(n), a.lo);
  if (n > 8) _mm256_maskstore_ps(p + 8, lanes_below(n - 8), a.hi);
}

inline V add(V a, V b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline V sub(V a, V b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline V mul(V a, V b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline V div(V a, V b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline V sqrt(V a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
inline V fma(V a, V b, V c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
inline V max(V a, V b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline V min(V a, V b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline V negate(V a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}

inline std::uint32_t at_least(V a, V b) {
  return bits(_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ));
}
inline std::uint32_t equal(V a, V b) {
  return bits(_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ));
}
inline std::uint32_t unordered(V a) {
  return bits(_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q));
}
inline V select(std::uint32_t mask, V yes, V no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_castsi256_ps(lanes_of(mask))),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_castsi256_ps(lanes_of(mask >> 8)))};
}
inline V zero_where_less(V x, V a, V b) {
  return {_mm256_andnot_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), x.lo),
          _mm256_andnot_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ), x.hi)};
}

inline __m256 scale_by_power(__m256 x, __m256 shifted) {
  const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(_mm256_set1_ps(12582912.0f)));
  const __m256i half = _mm256_srai_epi32(n, 1);
  const __m256i rest = _mm256_sub_epi32(n, half);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const __m256 b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(x, a), b);
}
inline V scale_by_power(V x, V shifted) { return {scale_by_power(x.lo, shifted.lo), scale_by_power(x.hi, shifted.hi)}; }

inline __m256 widen(__m128i bf16) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16)); }
inline V load_bf16(const std::uint16_t* p) {
  const auto* q = reinterpret_cast<const __m128i*>(p);
  return {widen(_mm_loadu_si128(q)), widen(_mm_loadu_si128(q + 1))};
}
inline void load_pairs(const void* line, V& even, V& odd) {
  const auto* p = static_cast<const __m256i*>(line);
  const __m256i a = _mm256_loadu_si256(p);
  const __m256i b = _mm256_loadu_si256(p + 1);
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  even = {_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
  odd = {_mm256_castsi256_ps(_mm256_and_si256(a, upper)), _mm256_castsi256_ps(_mm256_and_si256(b, upper))};
}
inline __m256i round_bf16(__m256 x) {  // in the lower half of each 32-bit lane
  const __m256i b = _mm256_castps_si256(x);
  const __m256i upper = _mm256_srli_epi32(b, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(b, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i nan = _mm256_or_si256(_mm256_and_si256(upper, _mm256_set1_epi32(0x8000)), _mm256_set1_epi32(0x7FC0));
  return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), nan, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
inline void store_bf16(std::uint16_t* p, V a) {
  const __m256i packed = _mm256_packus_epi32(round_bf16(a.lo), round_bf16(a.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
}

inline void transpose(const float* in, std::int64_t stride, float* out) {
  for (int w = 0; w < 16; ++w) {
    for (int r = 0; r < 16; ++r) __builtin_memcpy(out + 16 * w + r, in + r * stride + w, 4);
  }
}

inline __m256 ordered(__m256 pairs_of_halves) {  // quarters 0 2 1 3
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(pairs_of_halves), 0xD8));
}
inline void deinterleave(V a, V b, V& even, V& odd) {
  even = {ordered(_mm256_shuffle_ps(a.lo, a.hi, 0x88)), ordered(_mm256_shuffle_ps(b.lo, b.hi, 0x88))};
  odd = {ordered(_mm256_shuffle_ps(a.lo, a.hi, 0xDD)), ordered(_mm256_shuffle_ps(b.lo, b.hi, 0xDD))};
}
inline V zip(__m256 even, __m256 odd) {
  const __m256 low = _mm256_unpacklo_ps(even, odd);
  const __m256 high = _mm256_unpackhi_ps(even, odd);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
inline void interleave(V even, V odd, V& a, V& b) {
  a = zip(even.lo, odd.lo);
  b = zip(even.hi, odd.hi);
}

inline float reduce_add(V a) {
  const __m256 s8 = _mm256_add_ps(a.lo, a.hi);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
inline float reduce_max(V a) {
  const __m256 s8 = _mm256_max_ps(a.lo, a.hi);
  const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

}  // namespace
}  // namespace sluice::cpu
