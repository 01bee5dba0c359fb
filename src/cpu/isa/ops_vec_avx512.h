// Sixteen floats in one AVX-512 register. Same functions, with the same results up to fused multiply-add, as
// ops_vec_scalar.h, which documents them.
//
// Included by the two AVX-512 units only; internal linkage throughout.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace sluice::cpu {
namespace {

inline constexpr int kScorePanels = 4;
inline constexpr int kValueVecs = 4;

struct V {
  __m512 v;
};

inline __mmask16 lanes_below(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

inline V broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline V zero() { return {_mm512_setzero_ps()}; }
inline V load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline V load_part(const float* p, int n) { return {_mm512_maskz_loadu_ps(lanes_below(n), p)}; }
inline void store(float* p, V a) { _mm512_storeu_ps(p, a.v); }
inline void store_part(float* p, V a, int n) { _mm512_mask_storeu_ps(p, lanes_below(n), a.v); }

inline V add(V a, V b) { return {_mm512_add_ps(a.v, b.v)}; }
inline V sub(V a, V b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline V mul(V a, V b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline V div(V a, V b) { return {_mm512_div_ps(a.v, b.v)}; }
inline V sqrt(V a) { return {_mm512_sqrt_ps(a.v)}; }
inline V fma(V a, V b, V c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline V max(V a, V b) { return {_mm512_max_ps(a.v, b.v)}; }
inline V min(V a, V b) { return {_mm512_min_ps(a.v, b.v)}; }
inline V negate(V a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }

inline std::uint32_t at_least(V a, V b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
inline std::uint32_t equal(V a, V b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ); }
inline std::uint32_t unordered(V a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }
inline V select(std::uint32_t mask, V yes, V no) {
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(mask), no.v, yes.v)};
}
inline V zero_where_less(V x, V a, V b) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_NLT_UQ), x.v)};
}

inline V scale_by_power(V x, V shifted) {
  return {_mm512_scalef_ps(x.v, _mm512_sub_ps(shifted.v, _mm512_set1_ps(12582912.0f)))};
}

inline V load_bf16(const std::uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
inline void load_pairs(const void* line, V& even, V& odd) {
  const __m512i w = _mm512_loadu_si512(line);
  even = {_mm512_castsi512_ps(_mm512_slli_epi32(w, 16))};
  odd = {_mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))))};
}
// By integers: the conversion instruction would turn subnormal numbers into zero.
inline void store_bf16(std::uint16_t* p, V a) {
  const __m512i b = _mm512_castps_si512(a.v);
  const __m512i upper = _mm512_srli_epi32(b, 16);
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(b, _mm512_set1_epi32(0x7FFF)), odd);
  const __m512i nan = _mm512_or_si512(_mm512_and_si512(upper, _mm512_set1_epi32(0x8000)), _mm512_set1_epi32(0x7FC0));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_mask_blend_epi32(is_nan, _mm512_srli_epi32(sum, 16), nan);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(rounded));
}

inline void transpose(const float* in, std::int64_t stride, float* out) {
  __m512 r[16];
  __m512 t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(in + i * stride);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {  // pairs of rows
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {  // fours of rows: lane l of r[i + c] is column 4 l + c
    const auto pair = [&](int a) { return _mm512_castps_pd(t[i + a]); };
    r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(pair(0), pair(2)));
    r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pair(0), pair(2)));
    r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pair(1), pair(3)));
    r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pair(1), pair(3)));
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 low02 = _mm512_shuffle_f32x4(r[c], r[c + 4], 0x88);  // lanes 0 and 2 of rows 0 to 7
    const __m512 low13 = _mm512_shuffle_f32x4(r[c], r[c + 4], 0xDD);
    const __m512 high02 = _mm512_shuffle_f32x4(r[c + 8], r[c + 12], 0x88);
    const __m512 high13 = _mm512_shuffle_f32x4(r[c + 8], r[c + 12], 0xDD);
    _mm512_storeu_ps(out + 16 * c, _mm512_shuffle_f32x4(low02, high02, 0x88));
    _mm512_storeu_ps(out + 16 * (c + 4), _mm512_shuffle_f32x4(low13, high13, 0x88));
    _mm512_storeu_ps(out + 16 * (c + 8), _mm512_shuffle_f32x4(low02, high02, 0xDD));
    _mm512_storeu_ps(out + 16 * (c + 12), _mm512_shuffle_f32x4(low13, high13, 0xDD));
  }
}

inline void deinterleave(V a, V b, V& even, V& odd) {
  const __m512i first = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(1));
  even = {_mm512_permutex2var_ps(a.v, first, b.v)};
  odd = {_mm512_permutex2var_ps(a.v, second, b.v)};
}
inline void interleave(V even, V odd, V& a, V& b) {
  const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  a = {_mm512_permutex2var_ps(even.v, first, odd.v)};
  b = {_mm512_permutex2var_ps(even.v, second, odd.v)};
}

inline float reduce_add(V a) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
inline float reduce_max(V a) {
  const __m256 s8 = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

}  // namespace
}  // namespace sluice::cpu
