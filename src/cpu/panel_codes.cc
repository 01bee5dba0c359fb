#include "cpu/panel_codes.h"

#include <emmintrin.h>

#include <cstring>

#include "cpu/transpose.h"

namespace sluice::cpu {
namespace {

constexpr int kQuads = kPanelRows / 4;

__m128i load(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
void store(std::byte* to, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), v); }

// 16 bytes from `byte` on of the rows of a quad. All bytes of a row that a record needs are taken one after the other:
// rows are often a power of two apart, where few lines fit into the cache at once.
Rows4 load_quad(const CodeRows& rows, int quad, std::int64_t byte) {
  Rows4 r;
  const auto first = static_cast<std::size_t>(quad) * 4;
  for (std::size_t i = 0; i < 4; ++i) r.v[i] = load(rows[first + i] + byte);
  return r;
}

// 8 codes of 4 rows after another, each [4 rows][16 bytes of codes] > 16 bytes for each of 4 lines.
void store_lines(const Rows4& lines, const RecordTarget& to, std::int64_t first_line, int quad) {
  for (int i = 0; i < 4; ++i) store(to.codes + (first_line + i) * to.pitch + quad * 16, lines.v[i]);
}

// Of a and b, each [4 words][4 bytes][4 rows] of one line: nibbles 0 to 3 of a word into the low halves of bytes 0 to
// 3, and 4 to 7 into their high halves; [4 bytes][4 rows] > [2 k pairs][4 rows][2 k].
struct TwoLines {
  __m128i a, b;
};
[[gnu::always_inline]] inline TwoLines fold_halves(__m128i a, __m128i b) {
  const __m128i low = _mm_set1_epi8(0x0F);
  const __m128i first = _mm_unpacklo_epi64(a, b), second = _mm_unpackhi_epi64(a, b);  // bytes 0 and 1, 2 and 3
  const __m128i even = _mm_or_si128(_mm_and_si128(first, low), _mm_slli_epi16(_mm_and_si128(second, low), 4));
  const __m128i odd = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(first, 4), low), _mm_andnot_si128(low, second));
  return {_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd)};
}

// Of every 32 bits of a and b nibbles 0, 2, 4, 6 into the low half and 1, 3, 5, 7 into the high half.
[[gnu::always_inline]] inline TwoLines split_even_odd(__m128i a, __m128i b) {
  const __m128i nibbles = _mm_set1_epi8(0x0F), bytes = _mm_set1_epi16(0x00FF);
  const auto pairs = [&](__m128i v) { return _mm_and_si128(_mm_or_si128(v, _mm_srli_epi16(v, 4)), bytes); };
  const auto even = [&](__m128i v) { return pairs(_mm_and_si128(v, nibbles)); };
  const auto odd = [&](__m128i v) { return pairs(_mm_and_si128(_mm_srli_epi16(v, 4), nibbles)); };
  const __m128i evens = _mm_packus_epi16(even(a), even(b)), odds = _mm_packus_epi16(odd(a), odd(b));
  return {_mm_unpacklo_epi16(evens, odds), _mm_unpackhi_epi16(evens, odds)};
}

// All bits of `lines` that lie in magnitudes, [4 rows].
__m128i magnitudes_of(const Rows4& lines) {
  const __m128i any = _mm_or_si128(_mm_or_si128(lines.v[0], lines.v[1]), _mm_or_si128(lines.v[2], lines.v[3]));
  return _mm_and_si128(any, _mm_set1_epi8(0x77));
}

// [4 rows][4 bytes] > [4 bytes][4 rows].
__m128i transpose_bytes(__m128i v) {
  const __m128i pairs = _mm_unpacklo_epi8(v, _mm_srli_si128(v, 8));
  return _mm_unpacklo_epi8(pairs, _mm_srli_si128(pairs, 8));
}

// The first bytes of each row > [4 bytes][16 rows].
template <std::size_t Bytes>
Rows4 transposed_scales(const ScaleRows& rows) {
  Rows4 quads;
  for (std::size_t quad = 0; quad < kQuads; ++quad) {
    alignas(16) std::uint32_t words[4] = {};
    for (std::size_t i = 0; i < 4; ++i) std::memcpy(&words[i], rows[4 * quad + i], Bytes);
    quads.v[quad] = transpose_bytes(_mm_load_si128(reinterpret_cast<const __m128i*>(words)));
  }
  return transpose_32(quads);
}

bool any(__m128i mask) { return _mm_movemask_epi8(mask) != 0; }

}  // namespace

void store_fp8_codes(const CodeRows& rows, const RecordTarget& to) {
  for (int quad = 0; quad < kQuads; ++quad) {
    for (int byte = 0; byte < kStoredK; byte += 16) {
      store_lines(transpose_16(load_quad(rows, quad, byte)), to, byte / 4, quad);
    }
  }
}

void store_nvfp4_codes(const CodeRows& rows, const RecordTarget& to) {
  for (int quad = 0; quad < kQuads; ++quad) {
    for (int byte = 0; byte < kStoredK / 2; byte += 16) {
      const Rows4 r = transpose_8(load_quad(rows, quad, byte));
      const TwoLines first = fold_halves(r.v[0], r.v[1]), second = fold_halves(r.v[2], r.v[3]);
      store_lines({{first.a, first.b, second.a, second.b}}, to, byte / 4, quad);
    }
  }
}

bool store_mxfp4_codes(const CodeRows& rows, const RecordTarget& to) {
  __m128i zero_blocks = _mm_setzero_si128();
  for (int quad = 0; quad < kQuads; ++quad) {
    for (int byte = 0; byte < kStoredK / 2; byte += 16) {
      const Rows4 r = transpose_32(load_quad(rows, quad, byte));
      zero_blocks = _mm_or_si128(zero_blocks, _mm_cmpeq_epi32(magnitudes_of(r), _mm_setzero_si128()));
      const TwoLines first = split_even_odd(r.v[0], r.v[1]), second = split_even_odd(r.v[2], r.v[3]);
      store_lines({{first.a, first.b, second.a, second.b}}, to, byte / 4, quad);
    }
  }
  return any(zero_blocks);
}

// The stored byte (15 - exponent) * 8 + mantissa of a code exponent * 8 + mantissa.
bool store_plain_nvfp4_scales(const ScaleRows& rows, const RecordTarget& to) {
  const __m128i exponent = _mm_set1_epi8(0x78), magnitude = _mm_set1_epi8(0x7F);
  const Rows4 groups = transposed_scales<4>(rows);
  __m128i others = _mm_setzero_si128();
  for (const __m128i& v : groups.v) {
    others = _mm_or_si128(others, _mm_cmpeq_epi8(_mm_and_si128(v, exponent), _mm_setzero_si128()));
    others = _mm_or_si128(others, _mm_cmpeq_epi8(_mm_and_si128(v, magnitude), magnitude));
    others = _mm_or_si128(others, v);  // its sign
  }
  if (any(others)) return false;
  for (int i = 0; i < 4; ++i) store(to.scales + i * kPairRows, _mm_xor_si128(groups.v[i], exponent));
  return true;
}

bool store_plain_mxfp4_scales(const ScaleRows& rows, const RecordTarget& to) {
  const __m128i largest = _mm_set1_epi8(static_cast<char>(252)), zero = _mm_set1_epi8(static_cast<char>(254));
  const Rows4 groups = transposed_scales<2>(rows);
  const __m128i above = _mm_or_si128(_mm_subs_epu8(groups.v[0], largest), _mm_subs_epu8(groups.v[1], largest));
  if (_mm_movemask_epi8(_mm_cmpeq_epi8(above, _mm_setzero_si128())) != 0xFFFF) return false;
  for (int i = 0; i < 2; ++i) store(to.scales + i * kPairRows, _mm_sub_epi8(zero, groups.v[i]));
  return true;
}

}  // namespace sluice::cpu
