// Stored lines of fp8, nvfp4 and mxfp4 > operands in the layout of vdpbf16ps, in registers of AVX-512 with VBMI.
// Included by gemm_fused.h only.
//
// A decoder has: kOctets, lines of a panel in a group (what one scale governs); kGroups, groups in a record; kOperands,
// k pairs of a line; kScaleBytes before the codes; scale(), what a group of rows needs; operand<j>(), 16 rows x 2 k.
// One of whole weights has kFormat, kMostTokens of a fused kernel and kMostChains, lanes times tokens, of one of
// several lanes, limited by registers. One that leaves the powers of two of the scales to the kernel has kUnitOfOne:
// a scale is a fraction times 2^(kUnitOfOne - n); n is the byte, or what units() makes of 64 bytes.
#pragma once

#include <immintrin.h>

#include "cpu/isa/gemm_bf16_dot.h"
#include "cpu/isa/gemm_decode.h"

namespace sluice::cpu {
namespace {

struct alignas(64) Words {
  std::uint16_t v[32];
};
struct alignas(64) Bytes {
  std::uint8_t v[64];
};

template <class Table>
SLUICE_INLINE __m512i load_table(const Table& table) {
  return _mm512_load_si512(table.v);
}

template <int Shift>
constexpr Bytes e4m3_bytes(int first) {
  Bytes t{};
  for (int i = 0; i < 64; ++i)
    t.v[i] = static_cast<std::uint8_t>(e4m3_to_bf16(static_cast<std::uint32_t>(first + i)) >> Shift);
  return t;
}

inline constexpr Bytes kE4m3Low0 = e4m3_bytes<0>(0), kE4m3Low1 = e4m3_bytes<0>(64);
inline constexpr Bytes kE4m3High0 = e4m3_bytes<8>(0), kE4m3High1 = e4m3_bytes<8>(64);

// Two look-ups of 128 bytes; bf16 subnormals would be taken for zero, so no shifting of bits.
struct Fp8Decoder {
  static constexpr Format kFormat = Format::fp8;
  static constexpr int kGroups = 1, kOctets = 4, kOperands = 2, kScaleBytes = 0, kMostTokens = 8, kMostChains = 12;
  struct Scale {};
  struct Line {
    __m512i low, high;
  };
  __m512i low0 = load_table(kE4m3Low0), low1 = load_table(kE4m3Low1);
  __m512i high0 = load_table(kE4m3High0), high1 = load_table(kE4m3High1);
  __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));

  SLUICE_INLINE Scale scale(const char*) const { return {}; }
  SLUICE_INLINE Line line(const char* p, Scale) const {
    const __m512i codes = _mm512_loadu_si512(p);
    const __m512i high = _mm512_permutex2var_epi8(high0, codes, high1);
    return {_mm512_permutex2var_epi8(low0, codes, low1), _mm512_ternarylogic_epi32(high, codes, sign, 0xF8)};
  }
  template <int J>
  SLUICE_INLINE __m512i operand(const Line& l, Scale) const {
    return J == 0 ? _mm512_unpacklo_epi8(l.low, l.high) : _mm512_unpackhi_epi8(l.low, l.high);
  }
};

// For operand j: where the 8-bit windows of each 64-bit lane start, so that the low byte of a word has the magnitude
// from bit 0 on and the high byte has the sign at the top.
constexpr Bytes windows(int j) {
  Bytes t{};
  for (int i = 0; i < 64; ++i) {
    const int code = i % 8 / 2 * 16 + 4 * j;
    t.v[i] = static_cast<std::uint8_t>((i % 2 == 0 ? code : code - 4) & 63);
  }
  return t;
}

constexpr Bytes to_both_words() {
  Bytes t{};
  for (int i = 0; i < 64; ++i) t.v[i] = static_cast<std::uint8_t>(i / 4);
  return t;
}
inline constexpr Bytes kToBothWords = to_both_words();

// 16 scales > the low byte of both words of each row.
SLUICE_INLINE __m512i spread_scales(const char* p, __m512i index) {
  const __m512i bytes = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_maskz_permutexvar_epi8(0x5555555555555555u, index, bytes);
}

// 2 * the magnitude of e2m1.
constexpr std::uint32_t e2m1_doubled(int code) {
  constexpr std::uint32_t kDoubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  return kDoubled[code];
}

// bf16 bits of n / 16 * 2^8, n up to 180 with at most 8 significant bits.
constexpr std::uint32_t sixteenths_to_bf16(std::uint32_t n) {
  if (n == 0) return 0;
  std::uint32_t exponent = 127 + 7 - 4 + 8;
  while (n < 128) {
    n <<= 1;
    --exponent;
  }
  return exponent << 7 | (n & 127u);
}

// bf16 of magnitude * (1 + m / 8) * 2^(8 - e), e being 0 or 1, index = 16 * magnitude + 8 * e + m.
constexpr std::uint32_t nvfp4_to_bf16(int index) {
  const auto m = static_cast<std::uint32_t>(index % 8);
  const std::uint32_t n = e2m1_doubled(index / 16) * (8 + m);
  return n == 0 ? 0 : sixteenths_to_bf16(n) - (static_cast<std::uint32_t>(index) / 8 % 2 << 7);
}
template <int Shift>
constexpr Bytes nvfp4_bytes(int first) {
  Bytes t{};
  for (int i = 0; i < 64; ++i) t.v[i] = static_cast<std::uint8_t>(nvfp4_to_bf16(first + i) >> Shift);
  return t;
}
inline constexpr Bytes kNvfp4Low0 = nvfp4_bytes<0>(0), kNvfp4Low1 = nvfp4_bytes<0>(64);
inline constexpr Bytes kNvfp4High0 = nvfp4_bytes<8>(0), kNvfp4High1 = nvfp4_bytes<8>(64);

// Where a line has row r: in four bytes of each half of 16.
constexpr Bytes rows_of_line() {
  Bytes t{};
  for (int i = 0; i < 64; ++i) t.v[i] = static_cast<std::uint8_t>(i / 16 * 4 + i % 8 / 2);
  return t;
}
inline constexpr Bytes kRowsOfLine = rows_of_line();

// Both bytes of 64 weights are looked up by magnitude and the low four bits of the scale; what is left of the scale's
// exponent, half of it, is subtracted from the upper bytes. That saturates, so zero stays.
struct Nvfp4Decoder {
  static constexpr Format kFormat = Format::nvfp4;
  static constexpr int kGroups = 4, kOctets = 2, kOperands = 4, kScaleBytes = 128, kMostTokens = 8, kMostChains = 12;
  struct Scale {
    __m512i byte, exponent;
  };
  struct Line {
    __m512i low[2], high[2];  // of the lower and the upper halves of the bytes of codes
  };
  __m512i low0 = load_table(kNvfp4Low0), low1 = load_table(kNvfp4Low1);
  __m512i high0 = load_table(kNvfp4High0), high1 = load_table(kNvfp4High1);
  __m512i spread = load_table(kRowsOfLine);
  __m512i magnitude = _mm512_set1_epi8(0x70);
  __m512i nibble = _mm512_set1_epi8(0x0F);
  __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));

  SLUICE_INLINE Scale scale(const char* p) const {
    const __m512i bytes = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m512i byte = _mm512_permutexvar_epi8(spread, bytes);
    return {byte, _mm512_and_si512(_mm512_srli_epi16(byte, 4), nibble)};
  }
  template <int Half>
  SLUICE_INLINE void decode_half(__m512i codes, const Scale& s, Line& l) const {
    const __m512i index = _mm512_ternarylogic_epi32(magnitude, codes, s.byte, 0xCA);
    const __m512i high = _mm512_subs_epu8(_mm512_permutex2var_epi8(high0, index, high1), s.exponent);
    l.low[Half] = _mm512_permutex2var_epi8(low0, index, low1);
    l.high[Half] = _mm512_ternarylogic_epi32(high, codes, sign, 0xF8);
  }
  SLUICE_INLINE Line line(const char* p, const Scale& s) const {
    const __m512i codes = _mm512_loadu_si512(p);
    Line l;
    decode_half<0>(_mm512_slli_epi16(codes, 4), s, l);
    decode_half<1>(codes, s, l);
    return l;
  }
  template <int J>
  static SLUICE_INLINE __m512i operand_of(const Line& l) {
    return J % 2 == 0 ? _mm512_unpacklo_epi8(l.low[J / 2], l.high[J / 2])
                      : _mm512_unpackhi_epi8(l.low[J / 2], l.high[J / 2]);
  }
  template <int J>
  SLUICE_INLINE __m512i operand(const Line& l, const Scale&) const {
    return operand_of<J>(l);
  }
};

// bf16 of e2m1 * (1 + m / 8), index = 8 * code + m.
constexpr std::uint32_t nvfp4_unit_to_bf16(int index) {
  const auto m = static_cast<std::uint32_t>(index % 8);
  const std::uint32_t n = e2m1_doubled(index / 8 % 8) * (8 + m);
  const std::uint32_t sign = static_cast<std::uint32_t>(index / 64) << 15;
  return n == 0 ? 0 : sign | (sixteenths_to_bf16(n) - (8u << 7));
}
template <int Shift>
constexpr Bytes nvfp4_unit_bytes(int first) {
  Bytes t{};
  for (int i = 0; i < 64; ++i) t.v[i] = static_cast<std::uint8_t>(nvfp4_unit_to_bf16(first + i) >> Shift);
  return t;
}
inline constexpr Bytes kNvfp4UnitLow = nvfp4_unit_bytes<0>(0);
inline constexpr Bytes kNvfp4UnitHigh0 = nvfp4_unit_bytes<8>(0), kNvfp4UnitHigh1 = nvfp4_unit_bytes<8>(64);

// NVFP4 without the exponents of its scales, so that codes are looked up with their sign. It is bit 6 of an index:
// lower bytes don't depend on it, and a look-up of 64 bytes, which reads one register less, ignores it.
struct UnitNvfp4Decoder {
  static constexpr int kGroups = 4, kOctets = 2, kOperands = 4, kScaleBytes = 128;
  static constexpr int kUnitOfOne = 8;
  using Scale = __m512i;
  using Line = Nvfp4Decoder::Line;
  __m512i low = load_table(kNvfp4UnitLow);
  __m512i high0 = load_table(kNvfp4UnitHigh0), high1 = load_table(kNvfp4UnitHigh1);
  __m512i spread = load_table(kRowsOfLine);
  __m512i code = _mm512_set1_epi8(0x78);

  static SLUICE_INLINE __m512i units(__m512i scales) {
    return _mm512_and_si512(_mm512_srli_epi16(scales, 3), _mm512_set1_epi8(0x1F));
  }
  SLUICE_INLINE Scale scale(const char* p) const {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_permutexvar_epi8(spread, _mm512_castsi128_si512(bytes));
  }
  template <int Half>
  SLUICE_INLINE void decode_half(__m512i codes, Scale s, Line& l) const {
    const __m512i index = _mm512_ternarylogic_epi32(codes, s, code, 0xE4);
    l.low[Half] = _mm512_permutexvar_epi8(index, low);
    l.high[Half] = _mm512_permutex2var_epi8(high0, index, high1);
  }
  SLUICE_INLINE Line line(const char* p, Scale s) const {
    const __m512i codes = _mm512_loadu_si512(p);
    Line l;
    decode_half<0>(_mm512_slli_epi16(codes, 3), s, l);
    decode_half<1>(_mm512_srli_epi16(codes, 1), s, l);
    return l;
  }
  template <int J>
  SLUICE_INLINE __m512i operand(const Line& l, Scale) const {
    return Nvfp4Decoder::operand_of<J>(l);
  }
};

// By magnitude (and two bits that don't matter): bf16 of magnitude * 2^127, as if exponents had no end.
constexpr Words mxfp4_table() {
  Words t{};
  for (int i = 0; i < 32; ++i) {
    const std::uint32_t n = e2m1_doubled(i % 8);
    t.v[i] = static_cast<std::uint16_t>(n == 0 ? 0 : sixteenths_to_bf16(8 * n) + (119u << 7));
  }
  return t;
}
inline constexpr Words kMxfp4Table = mxfp4_table();
inline constexpr Bytes kMxfp4Windows[4] = {windows(0), windows(1), windows(2), windows(3)};

struct Mxfp4Decoder {
  static constexpr Format kFormat = Format::mxfp4;
  static constexpr int kGroups = 2, kOctets = 4, kOperands = 4, kScaleBytes = 64, kMostTokens = 8, kMostChains = 12;
  using Scale = __m512i;
  using Line = __m512i;
  __m512i table = load_table(kMxfp4Table);
  __m512i window[4] = {load_table(kMxfp4Windows[0]), load_table(kMxfp4Windows[1]), load_table(kMxfp4Windows[2]),
                       load_table(kMxfp4Windows[3])};
  __m512i spread = load_table(kToBothWords);
  __m512i sign = _mm512_set1_epi16(static_cast<std::int16_t>(0x8000));

  SLUICE_INLINE Scale scale(const char* p) const { return _mm512_slli_epi16(spread_scales(p, spread), 7); }
  SLUICE_INLINE Line line(const char* p, const Scale&) const { return _mm512_loadu_si512(p); }
  template <int J>
  SLUICE_INLINE __m512i operand(const Line& l, const Scale& s) const {
    const __m512i code = _mm512_multishift_epi64_epi8(window[J], l);
    const __m512i value = _mm512_subs_epu16(_mm512_permutexvar_epi16(code, table), s);
    return _mm512_ternarylogic_epi32(value, code, sign, 0xF8);
  }
};

// By code, and one bit that doesn't matter: bf16 of e2m1.
constexpr Words e2m1_table() {
  Words t{};
  for (int i = 0; i < 32; ++i) {
    const std::uint32_t n = e2m1_doubled(i % 8);
    const std::uint32_t sign = static_cast<std::uint32_t>(i % 16 / 8) << 15;
    t.v[i] = static_cast<std::uint16_t>(n == 0 ? 0 : sign | (sixteenths_to_bf16(8 * n) - (8u << 7)));
  }
  return t;
}
inline constexpr Words kE2m1Table = e2m1_table();

// MXFP4 without its scales.
struct PlainFp4Decoder {
  static constexpr int kGroups = 2, kOctets = 4, kOperands = 4, kScaleBytes = 64;
  static constexpr int kUnitOfOne = 127;
  struct Scale {};
  using Line = __m512i;
  __m512i table = load_table(kE2m1Table);

  SLUICE_INLINE Scale scale(const char*) const { return {}; }
  SLUICE_INLINE Line line(const char* p, Scale) const { return _mm512_loadu_si512(p); }
  template <int J>
  SLUICE_INLINE __m512i operand(const Line& l, Scale) const {
    return _mm512_permutexvar_epi16(J == 0 ? l : _mm512_srli_epi16(l, 4 * J), table);
  }
};

}  // namespace
}  // namespace sluice::cpu
