// All quads of rows in a vector of AVX-512, which is a line. Lines go past the cache, where clearing new memory has
// left nothing worth keeping. Internal linkage, for the units that include this.
#pragma once

#include <immintrin.h>

#include "cpu/isa/line_loops.h"

namespace sluice::cpu {
namespace {

struct Zmm {
  using R = __m512i;
  static constexpr int kLanes = 4;
  static constexpr bool kPicksBits = false;

  static R low_8(R a, R b) { return _mm512_unpacklo_epi8(a, b); }
  static R low_16(R a, R b) { return _mm512_unpacklo_epi16(a, b); }
  static R low_32(R a, R b) { return _mm512_unpacklo_epi32(a, b); }
  static R low_64(R a, R b) { return _mm512_unpacklo_epi64(a, b); }
  static R high_8(R a, R b) { return _mm512_unpackhi_epi8(a, b); }
  static R high_16(R a, R b) { return _mm512_unpackhi_epi16(a, b); }
  static R high_32(R a, R b) { return _mm512_unpackhi_epi32(a, b); }
  static R high_64(R a, R b) { return _mm512_unpackhi_epi64(a, b); }
  static R bit_and(R a, R b) { return _mm512_and_si512(a, b); }
  static R and_not(R mask, R v) { return _mm512_andnot_si512(mask, v); }
  static R bit_or(R a, R b) { return _mm512_or_si512(a, b); }
  template <int Bits>
  static R left_16(R v) {
    return _mm512_slli_epi16(v, Bits);
  }
  template <int Bits>
  static R right_16(R v) {
    return _mm512_srli_epi16(v, Bits);
  }
  static R each_8(char v) { return _mm512_set1_epi8(v); }
  static R each_16(short v) { return _mm512_set1_epi16(v); }
  static R pack_16(R a, R b) { return _mm512_packus_epi16(a, b); }
  static bool any_zero_32(R v) { return _mm512_testn_epi32_mask(v, v) != 0; }

  // `Bytes` of a row of each quad, 16 each: out[p] has those of quad q in lane q.
  template <int Bytes>
  [[gnu::always_inline]] static void load(const std::byte* const* quads, std::int64_t stride, int i, R* out) {
    const std::byte* const from[kQuads] = {row_of_quad(quads[0], stride, i), row_of_quad(quads[1], stride, i),
                                           row_of_quad(quads[2], stride, i), row_of_quad(quads[3], stride, i)};
    if constexpr (Bytes == 64) {
      const R a = load_line(from[0]), b = load_line(from[1]), c = load_line(from[2]), d = load_line(from[3]);
      split(_mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(c, d, 0x44), out);
      split(_mm512_shuffle_i32x4(a, b, 0xEE), _mm512_shuffle_i32x4(c, d, 0xEE), out + 2);
    } else {
      split(load_halves(from[0], from[1]), load_halves(from[2], from[3]), out);
    }
  }

  template <bool Stream>
  static void store(std::byte* to, R v) {
    Stream ? _mm512_stream_si512(reinterpret_cast<R*>(to), v) : _mm512_storeu_si512(to, v);
  }

 private:
  static R load_line(const std::byte* from) { return _mm512_loadu_si512(from); }
  static R load_halves(const std::byte* first, const std::byte* second) {
    const auto* a = reinterpret_cast<const __m256i*>(first);
    const auto* b = reinterpret_cast<const __m256i*>(second);
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(a)), _mm256_loadu_si256(b), 1);
  }
  // [2 quads][2 pieces] of each > [piece][4 quads].
  static void split(R low, R high, R* out) {
    out[0] = _mm512_shuffle_i32x4(low, high, 0x88);
    out[1] = _mm512_shuffle_i32x4(low, high, 0xDD);
  }
};

}  // namespace
}  // namespace sluice::cpu
