// Kernels that decode stored panels in registers, for avx512_bf16 (with VBMI): operands in the layout of vdpbf16ps from
// one line of codes, then either multiplied at once for up to kFusedTokens tokens, or stored for larger blocks.
// Included by that unit only.
//
// A decoder has: kOctets, lines of a panel in a group (what one scale governs); kGroups, groups in a record; kOperands,
// k pairs of a line; kScaleBytes before the codes; kMostTokens of a fused kernel; scale(), what a group of rows needs;
// operand<j>(), 16 rows x 2 k.
#pragma once

#include <immintrin.h>

#include "cpu/isa/gemm_bf16_dot.h"
#include "cpu/isa/gemm_decode.h"

namespace sluice::cpu {
namespace {

constexpr int kFusedAhead =
    6144;  // bytes: decoding fills the reorder window long before it hides the latency of memory

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
  static constexpr int kGroups = 1, kOctets = 4, kOperands = 2, kScaleBytes = 0, kMostTokens = 8;
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
// from bit `At` on and the high byte has the sign at the top.
template <int At>
constexpr Bytes windows(int j) {
  Bytes t{};
  for (int i = 0; i < 64; ++i) {
    const int code = i % 8 / 2 * 16 + 4 * j;
    t.v[i] = static_cast<std::uint8_t>((i % 2 == 0 ? code - At : code - 4) & 63);
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

// By (magnitude, scale mantissa m): bf16 of magnitude * (1 + m / 8) * 2^8, plus m << 4, which the scale takes away
// again.
constexpr Words nvfp4_table(int first) {
  Words t{};
  for (int i = 0; i < 32; ++i) {
    const auto m = static_cast<std::uint32_t>(i % 8);
    const std::uint32_t n = e2m1_doubled((first + i) / 8) * (8 + m);
    t.v[i] = static_cast<std::uint16_t>(n == 0 ? 0 : sixteenths_to_bf16(n) + (m << 4));
  }
  return t;
}
inline constexpr Words kNvfp4Table0 = nvfp4_table(0), kNvfp4Table1 = nvfp4_table(32);
inline constexpr Bytes kNvfp4Windows[4] = {windows<3>(0), windows<3>(1), windows<3>(2), windows<3>(3)};

// One look-up by magnitude and scale mantissa, then the scale's exponent is subtracted; that saturates, so zero stays.
struct Nvfp4Decoder {
  static constexpr Format kFormat = Format::nvfp4;
  static constexpr int kGroups = 4, kOctets = 2, kOperands = 4, kScaleBytes = 128;
  static constexpr int kMostTokens = 6;  // as many sums as there are registers left
  struct Scale {
    __m512i byte, exponent;
  };
  using Line = __m512i;
  __m512i table0 = load_table(kNvfp4Table0), table1 = load_table(kNvfp4Table1);
  __m512i window[4] = {load_table(kNvfp4Windows[0]), load_table(kNvfp4Windows[1]), load_table(kNvfp4Windows[2]),
                       load_table(kNvfp4Windows[3])};
  __m512i spread = load_table(kToBothWords);
  __m512i magnitude = _mm512_set1_epi16(0x38);
  __m512i sign = _mm512_set1_epi16(static_cast<std::int16_t>(0x8000));

  SLUICE_INLINE Scale scale(const char* p) const {
    const __m512i byte = spread_scales(p, spread);
    return {byte, _mm512_slli_epi16(byte, 4)};
  }
  SLUICE_INLINE Line line(const char* p, const Scale&) const { return _mm512_loadu_si512(p); }
  template <int J>
  SLUICE_INLINE __m512i operand(const Line& l, const Scale& s) const {
    const __m512i code = _mm512_multishift_epi64_epi8(window[J], l);
    const __m512i index = _mm512_ternarylogic_epi32(magnitude, code, s.byte, 0xCA);
    const __m512i value = _mm512_subs_epu16(_mm512_permutex2var_epi16(table0, index, table1), s.exponent);
    return _mm512_ternarylogic_epi32(value, code, sign, 0xF8);
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
inline constexpr Bytes kMxfp4Windows[4] = {windows<0>(0), windows<0>(1), windows<0>(2), windows<0>(3)};

struct Mxfp4Decoder {
  static constexpr Format kFormat = Format::mxfp4;
  static constexpr int kGroups = 2, kOctets = 4, kOperands = 4, kScaleBytes = 64, kMostTokens = 8;
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
  static constexpr int kGroups = 2, kOctets = 4, kOperands = 4, kScaleBytes = 64, kMostTokens = 8;
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

// Calls use(step, panel 0's operand, panel 1's) for the k pairs of one group of lines.
template <class D, class Use>
SLUICE_INLINE void decode_group(const D& d, const char* codes, const char* scales, Use use) {
  const typename D::Scale s0 = d.scale(scales), s1 = d.scale(scales + kPanelRows);
  repeat<D::kOctets>([&](auto octet) __attribute__((always_inline)) {
    const char* from = codes + octet * 2 * kLineBytes;
    const typename D::Line l0 = d.line(from, s0), l1 = d.line(from + kLineBytes, s1);
    repeat<D::kOperands>([&](auto j) __attribute__((always_inline)) {
      constexpr int kJ = decltype(j)::kValue;
      use(Index<decltype(octet)::kValue * D::kOperands + kJ>{}, d.template operand<kJ>(l0, s0),
          d.template operand<kJ>(l1, s1));
    });
  });
}

template <class D>
constexpr int kRecordPairs = D::kGroups* D::kOctets* D::kOperands;
template <class D>
constexpr int kGroupBytes = D::kOctets * 2 * kLineBytes;

template <class D, bool Scaled, int Tokens>
void fused(const GemmSegment& g) {
  using V = Zmm;
  constexpr int kGroupPairs = D::kOctets * D::kOperands;
  const D d;
  __m512 acc[2][Tokens];
  repeat<2 * Tokens>([&](auto i) __attribute__((always_inline)) { acc[i / Tokens][i % Tokens] = V::zero(); });
  const char* from = static_cast<const char*>(g.weights);
  const auto* x = static_cast<const std::uint16_t*>(g.x);
  for (std::int64_t left = g.k_pairs; left > 0; left -= kRecordPairs<D>) {
    const char* scales = from;
    from += D::kScaleBytes;
    for (int group = 0; group < D::kGroups; ++group, from += kGroupBytes<D>, scales += kPairRows) {
      repeat<2 * D::kOctets>([&](auto i) __attribute__((always_inline)) {
        __builtin_prefetch(from + kFusedAhead + i * kLineBytes, 0, 3);
      });
      decode_group(
          d, from, scales, [&](auto step, __m512i w0, __m512i w1) __attribute__((always_inline)) {
            repeat<Tokens>([&](auto t) __attribute__((always_inline)) {
              acc[0][t] = Bf16Dot::mac(acc[0][t], (__m512bh)w0, x + t * kSegmentK + step * 2);
              acc[1][t] = Bf16Dot::mac(acc[1][t], (__m512bh)w1, x + t * kSegmentK + step * 2);
            });
          });
      x += 2 * kGroupPairs;
    }
  }
  repeat<2 * Tokens>([&](auto i) __attribute__((always_inline)) {
    add_chain<V, Scaled>(g, i / Tokens, i % Tokens, Tokens, acc[i / Tokens][i % Tokens]);
  });
}

// 16 scale bytes as numbers.
SLUICE_INLINE __m512i scale_exponents(const char* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// 2^n for n from -126 to 127.
SLUICE_INLINE __m512 power_of_two(__m512i n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}

// Sums in units of the scale of the block at hand: going to the next block they are multiplied by a power of two, which
// rounds nothing, instead of every weight. The bits are those of `fused` as long as no exponent leaves its range.
template <int Tokens>
void fused_near(const GemmSegment& g) {
  using D = PlainFp4Decoder;
  const D d;
  __m512 acc[2][Tokens];
  repeat<2 * Tokens>([&](auto i) __attribute__((always_inline)) { acc[i / Tokens][i % Tokens] = Zmm::zero(); });
  const char* from = static_cast<const char*>(g.weights);
  const auto* x = static_cast<const std::uint16_t*>(g.x);
  __m512i unit0 = scale_exponents(from), unit1 = scale_exponents(from + kPanelRows);
  for (std::int64_t left = g.k_pairs; left > 0; left -= kRecordPairs<D>) {
    const char* scales = from;
    from += D::kScaleBytes;
    for (int group = 0; group < D::kGroups; ++group, from += kGroupBytes<D>, scales += kPairRows) {
      repeat<2 * D::kOctets>([&](auto i) __attribute__((always_inline)) {
        __builtin_prefetch(from + kFusedAhead + i * kLineBytes, 0, 3);
      });
      const __m512i next0 = scale_exponents(scales), next1 = scale_exponents(scales + kPanelRows);
      const __m512 factor0 = power_of_two(_mm512_sub_epi32(next0, unit0));
      const __m512 factor1 = power_of_two(_mm512_sub_epi32(next1, unit1));
      repeat<Tokens>([&](auto t) __attribute__((always_inline)) {
        acc[0][t] = _mm512_mul_ps(acc[0][t], factor0);
        acc[1][t] = _mm512_mul_ps(acc[1][t], factor1);
      });
      unit0 = next0;
      unit1 = next1;
      decode_group(
          d, from, scales, [&](auto step, __m512i w0, __m512i w1) __attribute__((always_inline)) {
            repeat<Tokens>([&](auto t) __attribute__((always_inline)) {
              acc[0][t] = Bf16Dot::mac(acc[0][t], (__m512bh)w0, x + t * kSegmentK + step * 2);
              acc[1][t] = Bf16Dot::mac(acc[1][t], (__m512bh)w1, x + t * kSegmentK + step * 2);
            });
          });
      x += 2 * D::kOctets * D::kOperands;
    }
  }
  const __m512 value0 = power_of_two(_mm512_sub_epi32(_mm512_set1_epi32(127), unit0));
  const __m512 value1 = power_of_two(_mm512_sub_epi32(_mm512_set1_epi32(127), unit1));
  repeat<Tokens>([&](auto t) __attribute__((always_inline)) {
    add_chain<Zmm, false>(g, 0, t, Tokens, _mm512_mul_ps(acc[0][t], value0));
    add_chain<Zmm, false>(g, 1, t, Tokens, _mm512_mul_ps(acc[1][t], value1));
  });
}

template <class D>
void decode(const DecodeArgs& a) {
  const D d;
  const char* from = static_cast<const char*>(a.weights);
  char* to = static_cast<char*>(a.panels);
  for (std::int64_t left = a.k_pairs; left > 0; left -= kRecordPairs<D>) {
    const char* scales = from;
    from += D::kScaleBytes;
    for (int group = 0; group < D::kGroups; ++group, from += kGroupBytes<D>, scales += kPairRows) {
      decode_group(
          d, from, scales, [&](auto, __m512i w0, __m512i w1) __attribute__((always_inline)) {
            _mm512_store_si512(to, w0);
            _mm512_store_si512(to + kLineBytes, w1);
            to += 2 * kLineBytes;
          });
    }
  }
}

template <class D, bool Scaled = false>
constexpr void fill_fused(GemmKernel (&table)[kFusedTokens + 1]) {
  [&]<int... I>(std::integer_sequence<int, I...>) { ((table[I + 1] = fused<D, Scaled, I + 1>), ...); }
  (std::make_integer_sequence<int, D::kMostTokens>{});
}

constexpr void fill_fused_near(GemmKernel (&table)[kFusedTokens + 1]) {
  [&]<int... I>(std::integer_sequence<int, I...>) { ((table[I + 1] = fused_near<I + 1>), ...); }
  (std::make_integer_sequence<int, kFusedTokens>{});
}

template <class D>
constexpr void use_decoder(GemmKernels& table) {
  fill_fused<D>(table.fused[static_cast<int>(D::kFormat)]);
  table.decode[static_cast<int>(D::kFormat)] = decode<D>;
}

}  // namespace
}  // namespace sluice::cpu
