// Small transposes for packing weights: 4 rows of 16 bytes, by instructions that every x86-64 processor has.
//
// Used by panel.cc and panel_codes.cc while loading. Pure functions.
#pragma once

#include <emmintrin.h>

namespace sluice::cpu {

struct Rows4 {
  __m128i v[4];
};

// [4 rows][4 words of 32 bits] > [4 words][4 rows].
inline Rows4 transpose_32(const Rows4& r) {
  const __m128i a = _mm_unpacklo_epi32(r.v[0], r.v[1]), b = _mm_unpacklo_epi32(r.v[2], r.v[3]);
  const __m128i c = _mm_unpackhi_epi32(r.v[0], r.v[1]), d = _mm_unpackhi_epi32(r.v[2], r.v[3]);
  return {{_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b), _mm_unpacklo_epi64(c, d), _mm_unpackhi_epi64(c, d)}};
}

// [4 rows][4 words][2 halves of 16 bits] > [4 words][2 halves][4 rows].
inline Rows4 transpose_16(const Rows4& r) {
  const __m128i a = _mm_unpacklo_epi16(r.v[0], r.v[1]), b = _mm_unpacklo_epi16(r.v[2], r.v[3]);
  const __m128i c = _mm_unpackhi_epi16(r.v[0], r.v[1]), d = _mm_unpackhi_epi16(r.v[2], r.v[3]);
  return {{_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b), _mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d)}};
}

// [4 rows][4 words][4 bytes] > [4 words][4 bytes][4 rows].
inline Rows4 transpose_8(const Rows4& r) {
  const __m128i a = _mm_unpacklo_epi8(r.v[0], r.v[2]), b = _mm_unpacklo_epi8(r.v[1], r.v[3]);
  const __m128i c = _mm_unpackhi_epi8(r.v[0], r.v[2]), d = _mm_unpackhi_epi8(r.v[1], r.v[3]);
  return {{_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(c, d), _mm_unpackhi_epi8(c, d)}};
}

}  // namespace sluice::cpu
