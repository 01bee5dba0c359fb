// By instructions that every x86-64 processor has.
#include <emmintrin.h>

#include "cpu/isa/line_loops.h"

namespace sluice::cpu {
namespace {

struct Xmm {
  using R = __m128i;
  static constexpr int kLanes = 1;
  static constexpr bool kPicksBits = false;

  static R low_8(R a, R b) { return _mm_unpacklo_epi8(a, b); }
  static R low_16(R a, R b) { return _mm_unpacklo_epi16(a, b); }
  static R low_32(R a, R b) { return _mm_unpacklo_epi32(a, b); }
  static R low_64(R a, R b) { return _mm_unpacklo_epi64(a, b); }
  static R high_8(R a, R b) { return _mm_unpackhi_epi8(a, b); }
  static R high_16(R a, R b) { return _mm_unpackhi_epi16(a, b); }
  static R high_32(R a, R b) { return _mm_unpackhi_epi32(a, b); }
  static R high_64(R a, R b) { return _mm_unpackhi_epi64(a, b); }
  static R bit_and(R a, R b) { return _mm_and_si128(a, b); }
  static R and_not(R mask, R v) { return _mm_andnot_si128(mask, v); }
  static R bit_or(R a, R b) { return _mm_or_si128(a, b); }
  template <int Bits>
  static R left_16(R v) {
    return _mm_slli_epi16(v, Bits);
  }
  template <int Bits>
  static R right_16(R v) {
    return _mm_srli_epi16(v, Bits);
  }
  static R each_8(char v) { return _mm_set1_epi8(v); }
  static R each_16(short v) { return _mm_set1_epi16(v); }
  static R pack_16(R a, R b) { return _mm_packus_epi16(a, b); }
  static bool any_zero_32(R v) { return _mm_movemask_epi8(_mm_cmpeq_epi32(v, _mm_setzero_si128())) != 0; }

  // `Bytes` of a row, 16 each.
  template <int Bytes>
  [[gnu::always_inline]] static void load(const std::byte* const* quads, std::int64_t stride, int i, R* out) {
    for (int p = 0; p < Bytes / 16; ++p)
      out[p] = _mm_loadu_si128(reinterpret_cast<const R*>(row_of_quad(quads[0], stride, i) + 16 * p));
  }
  template <bool Stream>
  static void store(std::byte* to, R v) {
    _mm_storeu_si128(reinterpret_cast<R*>(to), v);
  }
};

constexpr LineKernels kTable = make_line_table<Xmm>();

}  // namespace

const LineKernels& line_kernels_scalar() { return kTable; }

}  // namespace sluice::cpu
