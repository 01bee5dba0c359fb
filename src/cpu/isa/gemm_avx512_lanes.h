// 16 f32 lanes in one zmm register: the vector class of both AVX-512 units. Included by those two only.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/isa/gemm_body.h"

namespace sluice::cpu {
namespace {

struct Zmm {
  using F = __m512;
  static constexpr int kPanels = 2;
  static constexpr int kTokens = 12;  // 24 sums, 2 to 4 weights and 1 or 2 inputs in 32 registers
  static constexpr int kBothPanelTokens = 12;
  static constexpr int kSteps = 4;
  static constexpr int kFusedPlainTokens = 4;

  static SLUICE_INLINE F zero() { return _mm512_setzero_ps(); }
  static SLUICE_INLINE F broadcast(float v) { return _mm512_set1_ps(v); }
  static SLUICE_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
  static SLUICE_INLINE void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static SLUICE_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  static SLUICE_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static SLUICE_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static SLUICE_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
  static SLUICE_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }

  // v > limit ? limit : v, and the mirror image; the instruction returns its second operand for a NaN.
  static SLUICE_INLINE F at_most(F v, F limit) { return _mm512_min_ps(limit, v); }
  static SLUICE_INLINE F at_least(F v, F limit) { return _mm512_max_ps(limit, v); }
  static SLUICE_INLINE F less(F a, F b, F yes, F no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
  }

  static SLUICE_INLINE F bit_xor(F a, F b) { return _mm512_xor_ps(a, b); }
  static SLUICE_INLINE F negate(F v) { return _mm512_xor_ps(v, broadcast(-0.0f)); }
  static SLUICE_INLINE F abs(F v) { return _mm512_andnot_ps(broadcast(-0.0f), v); }
  // 2^floor(log2 v) of a positive normal number, 0 below.
  static SLUICE_INLINE F exponent(F v) { return _mm512_and_ps(v, _mm512_castsi512_ps(_mm512_set1_epi32(0x7F800000))); }
  static SLUICE_INLINE F copy_sign(F size, F sign) {
    return _mm512_or_ps(abs(size), _mm512_and_ps(sign, broadcast(-0.0f)));
  }
  static SLUICE_INLINE F round(F v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static SLUICE_INLINE F ldexp(F v, F n) { return _mm512_scalef_ps(v, n); }

  static SLUICE_INLINE F bf16_even(const char* line) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(line), 16));
  }
  static SLUICE_INLINE F bf16_odd(const char* line) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(line), _mm512_set1_epi32(-65536)));
  }

  static SLUICE_INLINE F load_bf16(const char* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  // Upper halves of the rounded bits, ties to even, quiet NaNs: as to_bf16. (vcvtneps2bf16 flushes subnormals.)
  static SLUICE_INLINE __m512i rounded(F v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __m512i quiet =
        _mm512_or_si512(_mm512_and_si512(bits, _mm512_set1_epi32(INT32_MIN)), _mm512_set1_epi32(0x7FC00000));
    return _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), sum, quiet);
  }
  static SLUICE_INLINE F round_bf16(F v) {
    return _mm512_castsi512_ps(_mm512_and_si512(rounded(v), _mm512_set1_epi32(-65536)));
  }
  static SLUICE_INLINE void store_bf16(char* p, F v) {
    const __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded(v), 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), half);
  }

  using I = __m512i;
  static SLUICE_INLINE I no_bits() { return _mm512_setzero_si512(); }
  static SLUICE_INLINE I load_bits(const char* p) { return _mm512_loadu_si512(p); }
  static SLUICE_INLINE I broadcast_32(std::uint32_t v) { return _mm512_set1_epi32(static_cast<std::int32_t>(v)); }
  static SLUICE_INLINE I bytes_to_32(const char* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static SLUICE_INLINE I bits_and(I v, std::uint32_t mask) { return _mm512_and_si512(v, broadcast_32(mask)); }
  static SLUICE_INLINE I add_32(I a, I b) { return _mm512_add_epi32(a, b); }
  static SLUICE_INLINE I sub_32(I a, I b) { return _mm512_sub_epi32(a, b); }
  template <int N>
  static SLUICE_INLINE I shift_left(I v) {
    return _mm512_slli_epi32(v, N);
  }
  template <int N>
  static SLUICE_INLINE I shift_right(I v) {
    return _mm512_srli_epi32(v, N);
  }
  template <int N>
  static SLUICE_INLINE I shift_right_signed(I v) {
    return _mm512_srai_epi32(v, N);
  }
  template <class Table>
  static SLUICE_INLINE I look_up(const Table& table, I index) {
    const __m128i t = _mm_load_si128(reinterpret_cast<const __m128i*>(table.v));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), index);
  }
  static SLUICE_INLINE I interleave_low(I a, I b) { return _mm512_unpacklo_epi8(a, b); }
  static SLUICE_INLINE I interleave_high(I a, I b) { return _mm512_unpackhi_epi8(a, b); }
  static SLUICE_INLINE F floats(I v) { return _mm512_castsi512_ps(v); }
  static SLUICE_INLINE bool has_e4m3_nan(I v) {
    const __m512i nan = _mm512_set1_epi8(0x7F);
    return _mm512_cmpeq_epi8_mask(_mm512_and_si512(v, nan), nan) != 0;
  }
  static SLUICE_INLINE void store_pair(char* p, F even, F odd) {
    const __m512i upper = _mm512_and_si512(_mm512_castps_si512(odd), _mm512_set1_epi32(-65536));
    _mm512_storeu_si512(p, _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(even), 16), upper));
  }
};

}  // namespace
}  // namespace sluice::cpu
