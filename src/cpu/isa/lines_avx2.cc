// AVX2: two quads of rows in a vector.
#include <immintrin.h>

#include "cpu/isa/line_loops.h"

namespace sluice::cpu {
namespace {

struct Ymm {
  using R = __m256i;
  static constexpr int kLanes = 2;
  static constexpr bool kPicksBits = false;

  static R low_8(R a, R b) { return _mm256_unpacklo_epi8(a, b); }
  static R low_16(R a, R b) { return _mm256_unpacklo_epi16(a, b); }
  static R low_32(R a, R b) { return _mm256_unpacklo_epi32(a, b); }
  static R low_64(R a, R b) { return _mm256_unpacklo_epi64(a, b); }
  static R high_8(R a, R b) { return _mm256_unpackhi_epi8(a, b); }
  static R high_16(R a, R b) { return _mm256_unpackhi_epi16(a, b); }
  static R high_32(R a, R b) { return _mm256_unpackhi_epi32(a, b); }
  static R high_64(R a, R b) { return _mm256_unpackhi_epi64(a, b); }
  static R bit_and(R a, R b) { return _mm256_and_si256(a, b); }
  static R and_not(R mask, R v) { return _mm256_andnot_si256(mask, v); }
  static R bit_or(R a, R b) { return _mm256_or_si256(a, b); }
  template <int Bits>
  static R left_16(R v) {
    return _mm256_slli_epi16(v, Bits);
  }
  template <int Bits>
  static R right_16(R v) {
    return _mm256_srli_epi16(v, Bits);
  }
  static R each_8(char v) { return _mm256_set1_epi8(v); }
  static R each_16(short v) { return _mm256_set1_epi16(v); }
  static R pack_16(R a, R b) { return _mm256_packus_epi16(a, b); }
  static bool any_zero_32(R v) { return _mm256_movemask_epi8(_mm256_cmpeq_epi32(v, _mm256_setzero_si256())) != 0; }

  // `Bytes` of a row of two quads, 16 each: out[p] has those of the first quad in its low lane.
  template <int Bytes>
  [[gnu::always_inline]] static void load(const std::byte* const* quads, std::int64_t stride, int i, R* out) {
    for (int p = 0; p < Bytes / 16; p += 2) {
      const R a = _mm256_loadu_si256(reinterpret_cast<const R*>(row_of_quad(quads[0], stride, i) + 16 * p));
      const R b = _mm256_loadu_si256(reinterpret_cast<const R*>(row_of_quad(quads[1], stride, i) + 16 * p));
      out[p] = _mm256_permute2x128_si256(a, b, 0x20);
      out[p + 1] = _mm256_permute2x128_si256(a, b, 0x31);
    }
  }
  template <bool Stream>
  static void store(std::byte* to, R v) {
    _mm256_storeu_si256(reinterpret_cast<R*>(to), v);
  }
};

constexpr LineKernels kTable = make_line_table<Ymm>();

}  // namespace

const LineKernels& line_kernels_avx2() { return kTable; }

}  // namespace sluice::cpu
