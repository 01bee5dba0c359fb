// AVX2 with FMA: 16 lanes are two ymm registers.
#include <immintrin.h>

#include "cpu/isa/gemm_epilogue.h"

namespace sluice::cpu {
namespace {

struct YmmPair {
  struct F {
    __m256 lo, hi;
  };
  static constexpr int kPanels = 1;
  static constexpr int kTokens = 4;  // 8 sums, 4 weights and 2 inputs in 16 registers
  static constexpr int kBothPanelTokens = 2;
  static constexpr int kSteps = 4;
  static constexpr int kFusedPlainTokens = 2;

  static SLUICE_INLINE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static SLUICE_INLINE F broadcast(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
  static SLUICE_INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static SLUICE_INLINE void store(float* p, F v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
  }
  static SLUICE_INLINE F add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  static SLUICE_INLINE F sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  static SLUICE_INLINE F mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  static SLUICE_INLINE F div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  static SLUICE_INLINE F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }

  // v > limit ? limit : v, and the mirror image; the instruction returns its second operand for a NaN.
  static SLUICE_INLINE F at_most(F v, F limit) {
    return {_mm256_min_ps(limit.lo, v.lo), _mm256_min_ps(limit.hi, v.hi)};
  }
  static SLUICE_INLINE F at_least(F v, F limit) {
    return {_mm256_max_ps(limit.lo, v.lo), _mm256_max_ps(limit.hi, v.hi)};
  }
  static SLUICE_INLINE F less(F a, F b, F yes, F no) {
    return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
            _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
  }

  static SLUICE_INLINE F bit_xor(F a, F b) { return {_mm256_xor_ps(a.lo, b.lo), _mm256_xor_ps(a.hi, b.hi)}; }
  static SLUICE_INLINE F negate(F v) { return bit_xor(v, broadcast(-0.0f)); }
  static SLUICE_INLINE F abs(F v) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, v.lo), _mm256_andnot_ps(sign, v.hi)};
  }
  // 2^floor(log2 v) of a positive normal number, 0 below.
  static SLUICE_INLINE F exponent(F v) {
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7F800000));
    return {_mm256_and_ps(v.lo, mask), _mm256_and_ps(v.hi, mask)};
  }
  static SLUICE_INLINE F copy_sign(F size, F from) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const F s = abs(size);
    return {_mm256_or_ps(s.lo, _mm256_and_ps(from.lo, sign)), _mm256_or_ps(s.hi, _mm256_and_ps(from.hi, sign))};
  }
  static SLUICE_INLINE F round(F v) {
    constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(v.lo, kMode), _mm256_round_ps(v.hi, kMode)};
  }

  // v * 2^n for integers n from -160 to 160, in two factors so that each is a normal number.
  static SLUICE_INLINE __m256 ldexp_half(__m256 v, __m256 n) {
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i first = _mm256_srai_epi32(whole, 1);
    const __m256i second = _mm256_sub_epi32(whole, first);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23));
    const __m256 b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(v, a), b);
  }
  static SLUICE_INLINE F ldexp(F v, F n) { return {ldexp_half(v.lo, n.lo), ldexp_half(v.hi, n.hi)}; }

  static SLUICE_INLINE __m256i bits(const char* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static SLUICE_INLINE F bf16_even(const char* line) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(bits(line), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(bits(line + 32), 16))};
  }
  static SLUICE_INLINE F bf16_odd(const char* line) {
    const __m256i mask = _mm256_set1_epi32(-65536);
    return {_mm256_castsi256_ps(_mm256_and_si256(bits(line), mask)),
            _mm256_castsi256_ps(_mm256_and_si256(bits(line + 32), mask))};
  }

  static SLUICE_INLINE __m256 widen(const char* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static SLUICE_INLINE F load_bf16(const char* p) { return {widen(p), widen(p + 16)}; }

  // Bits rounded to the upper half, ties to even, quiet NaNs: as to_bf16.
  static SLUICE_INLINE __m256i rounded(__m256 v) {
    const __m256i b = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(b, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i quiet =
        _mm256_or_si256(_mm256_and_si256(b, _mm256_set1_epi32(INT32_MIN)), _mm256_set1_epi32(0x7FC00000));
    return _mm256_blendv_epi8(sum, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
  }
  static SLUICE_INLINE F round_bf16(F v) {
    const __m256i mask = _mm256_set1_epi32(-65536);
    return {_mm256_castsi256_ps(_mm256_and_si256(rounded(v.lo), mask)),
            _mm256_castsi256_ps(_mm256_and_si256(rounded(v.hi), mask))};
  }
  static SLUICE_INLINE void store_bf16(char* p, F v) {
    // packus works within 128-bit lanes, hence the permutation.
    const __m256i packed =
        _mm256_packus_epi32(_mm256_srli_epi32(rounded(v.lo), 16), _mm256_srli_epi32(rounded(v.hi), 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
  }

  struct I {
    __m256i lo, hi;
  };
  static SLUICE_INLINE I no_bits() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static SLUICE_INLINE I load_bits(const char* p) { return {bits(p), bits(p + 32)}; }
  static SLUICE_INLINE I broadcast_32(std::uint32_t v) {
    const __m256i all = _mm256_set1_epi32(static_cast<std::int32_t>(v));
    return {all, all};
  }
  static SLUICE_INLINE I bytes_to_32(const char* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static SLUICE_INLINE I bits_and(I v, std::uint32_t mask) {
    const I m = broadcast_32(mask);
    return {_mm256_and_si256(v.lo, m.lo), _mm256_and_si256(v.hi, m.hi)};
  }
  static SLUICE_INLINE I add_32(I a, I b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
  static SLUICE_INLINE I sub_32(I a, I b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
  template <int N>
  static SLUICE_INLINE I shift_left(I v) {
    return {_mm256_slli_epi32(v.lo, N), _mm256_slli_epi32(v.hi, N)};
  }
  template <int N>
  static SLUICE_INLINE I shift_right(I v) {
    return {_mm256_srli_epi32(v.lo, N), _mm256_srli_epi32(v.hi, N)};
  }
  template <int N>
  static SLUICE_INLINE I shift_right_signed(I v) {
    return {_mm256_srai_epi32(v.lo, N), _mm256_srai_epi32(v.hi, N)};
  }
  template <class Table>
  static SLUICE_INLINE I look_up(const Table& table, I index) {
    const __m256i t = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table.v)));
    return {_mm256_shuffle_epi8(t, index.lo), _mm256_shuffle_epi8(t, index.hi)};
  }
  static SLUICE_INLINE I interleave_low(I a, I b) {
    return {_mm256_unpacklo_epi8(a.lo, b.lo), _mm256_unpacklo_epi8(a.hi, b.hi)};
  }
  static SLUICE_INLINE I interleave_high(I a, I b) {
    return {_mm256_unpackhi_epi8(a.lo, b.lo), _mm256_unpackhi_epi8(a.hi, b.hi)};
  }
  static SLUICE_INLINE F floats(I v) { return {_mm256_castsi256_ps(v.lo), _mm256_castsi256_ps(v.hi)}; }
  static SLUICE_INLINE bool has_e4m3_nan(I v) {
    const __m256i nan = _mm256_set1_epi8(0x7F);
    const __m256i equal = _mm256_or_si256(_mm256_cmpeq_epi8(_mm256_and_si256(v.lo, nan), nan),
                                          _mm256_cmpeq_epi8(_mm256_and_si256(v.hi, nan), nan));
    return _mm256_movemask_epi8(equal) != 0;
  }
  static SLUICE_INLINE __m256i both(__m256 even, __m256 odd) {
    const __m256i upper = _mm256_and_si256(_mm256_castps_si256(odd), _mm256_set1_epi32(-65536));
    return _mm256_or_si256(_mm256_srli_epi32(_mm256_castps_si256(even), 16), upper);
  }
  static SLUICE_INLINE void store_pair(char* p, F even, F odd) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), both(even.lo, odd.lo));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), both(even.hi, odd.hi));
  }
};

constexpr GemmKernels kTable = make_plain_table<YmmPair>("avx2");

}  // namespace

const GemmKernels& gemm_avx2() { return kTable; }

}  // namespace sluice::cpu
