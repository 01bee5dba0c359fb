// Kernels that decode stored panels in registers, for avx512_bf16 (with VBMI): operands in the layout of vdpbf16ps from
// one line of codes, then either multiplied at once for up to kFusedTokens tokens, or stored for larger blocks.
// Included by that unit only.
//
// A decoder has: kOctets, lines of a panel in a group (what one scale governs); kGroups, groups in a record; kOperands,
// k pairs of a line; kScaleBytes before the codes; kMostTokens of a fused kernel, and kMostChains, lanes times tokens,
// of one of several lanes, limited by registers; scale(), what a group of rows needs; operand<j>(), 16 rows x 2 k.
#pragma once

#include <immintrin.h>

#include "cpu/isa/gemm_bf16_dot.h"
#include "cpu/isa/gemm_decode.h"

namespace sluice::cpu {
namespace {

// Bytes that a single lane is fetched ahead. All lanes together are read strictly in order, which hardware follows
// best when nothing is fetched ahead; a single lane leaves out lines, and the chains of one lane hide less latency.
constexpr int kFusedAhead = 6144;

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
  SLUICE_INLINE __m512i operand(const Line& l, const Scale&) const {
    return J % 2 == 0 ? _mm512_unpacklo_epi8(l.low[J / 2], l.high[J / 2])
                      : _mm512_unpackhi_epi8(l.low[J / 2], l.high[J / 2]);
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
  static constexpr int kGroups = 2, kOctets = 4, kOperands = 4, kScaleBytes = 64, kMostTokens = 8, kMostChains = 12;
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

template <class D>
constexpr int kRecordPairs = D::kGroups* D::kOctets* D::kOperands;
template <class D>
constexpr int kCodeBytes = D::kGroups* D::kOctets * 2 * kLineBytes;  // of a record of one lane

// Walks over the records of one lane, or of all at once.
template <class D, int Lanes>
struct Records {
  const char* next;
  std::int64_t lanes, lane;
  const char* scales = nullptr;
  const char* codes = nullptr;
  const char* ahead;

  // A lane that is read alone fetches its share of what follows all lanes, in order.
  SLUICE_INLINE explicit Records(const GemmSegment& g) : Records(g.weights, g.lanes, g.lane) {
    const std::int64_t lane_bytes = g.k_pairs / kRecordPairs<D> * (D::kScaleBytes + kCodeBytes<D>);
    ahead = next + (g.lanes > 1 ? (g.lanes + g.lane) * lane_bytes : kFusedAhead);
  }
  SLUICE_INLINE Records(const void* weights, int lanes_, int lane_)
      : next(static_cast<const char*>(weights)),
        lanes(Lanes > 1 ? Lanes : lanes_),
        lane(Lanes > 1 ? 0 : lane_),
        ahead(next) {}
  SLUICE_INLINE void fetch() {
    __builtin_prefetch(ahead, 0, 3);
    __builtin_prefetch(ahead + kLineBytes, 0, 3);
    ahead += 2 * kLineBytes;
  }
  SLUICE_INLINE void open() {
    scales = next + lane * D::kScaleBytes;
    codes = next + lanes * D::kScaleBytes + lane * 2 * kLineBytes;
    next += lanes * (D::kScaleBytes + kCodeBytes<D>);
  }
  SLUICE_INLINE void next_group() { scales += kPairRows; }
  SLUICE_INLINE void next_lines() { codes += lanes * 2 * kLineBytes; }
};

// Calls use(step, lane, panel 0's operand, panel 1's) for the k pairs of one group of lines.
template <bool Ahead, int Lanes, class D, class Use>
SLUICE_INLINE void decode_group(const D& d, Records<D, Lanes>& r, Use use) {
  typename D::Scale s[Lanes][2];
  repeat<2 * Lanes>([&](auto i) __attribute__((always_inline)) {
    s[i / 2][i % 2] = d.scale(r.scales + i / 2 * D::kScaleBytes + i % 2 * kPanelRows);
  });
  repeat<D::kOctets>([&](auto octet) __attribute__((always_inline)) {
    if constexpr (Ahead) r.fetch();
    repeat<Lanes>([&](auto lane) __attribute__((always_inline)) {
      const char* from = r.codes + lane * 2 * kLineBytes;
      const typename D::Line l0 = d.line(from, s[lane][0]), l1 = d.line(from + kLineBytes, s[lane][1]);
      repeat<D::kOperands>([&](auto j) __attribute__((always_inline)) {
        constexpr int kJ = decltype(j)::kValue;
        use(Index<decltype(octet)::kValue * D::kOperands + kJ>{}, lane, d.template operand<kJ>(l0, s[lane][0]),
            d.template operand<kJ>(l1, s[lane][1]));
      });
    });
    r.next_lines();
  });
  r.next_group();
}

// Sums of the chains, [lane][panel][token], and the inputs that they belong to.
template <bool Scaled, int Lanes, int Tokens>
struct Chains {
  // Inputs are stored in segments of kSegmentK, which hold the columns of two scaled lanes.
  static constexpr int lane_x(int lane) {
    return Scaled ? lane / 2 * Tokens * kSegmentK + lane % 2 * kScaledK : lane * Tokens * kSegmentK;
  }
  __m512 sum[Lanes][2][Tokens];
  const std::uint16_t* x;

  SLUICE_INLINE explicit Chains(const GemmSegment& g) : x(static_cast<const std::uint16_t*>(g.x)) {
    repeat<2 * Lanes * Tokens>([&](auto i) __attribute__((always_inline)) {
      sum[i / (2 * Tokens)][i / Tokens % 2][i % Tokens] = Zmm::zero();
    });
  }
  template <int Step, int Lane>
  SLUICE_INLINE void add(__m512i w0, __m512i w1) {
    repeat<Tokens>([&](auto t) __attribute__((always_inline)) {
      const std::uint16_t* pair = x + lane_x(Lane) + t * kSegmentK + Step * 2;
      sum[Lane][0][t] = Bf16Dot::mac(sum[Lane][0][t], (__m512bh)w0, pair);
      sum[Lane][1][t] = Bf16Dot::mac(sum[Lane][1][t], (__m512bh)w1, pair);
    });
  }
  // One chain after the other, into the totals.
  SLUICE_INLINE void store(GemmSegment g) const {
    repeat<Lanes>([&](auto lane) __attribute__((always_inline)) {
      repeat<2 * Tokens>([&](auto i) __attribute__((always_inline)) {
        add_chain<Zmm, Scaled>(g, i / Tokens, i % Tokens, Tokens, sum[lane][i / Tokens][i % Tokens]);
      });
      g.first = false;
      if constexpr (Scaled) {
        ++g.x_scale;
        g.w_scale += 2;
      }
    });
  }
};

template <class D, bool Scaled, int Lanes, int Tokens>
void fused(const GemmSegment& g) {
  const D d;
  Chains<Scaled, Lanes, Tokens> chains(g);
  Records<D, Lanes> records(g);
  for (std::int64_t left = g.k_pairs; left > 0; left -= kRecordPairs<D>) {
    records.open();
    for (int group = 0; group < D::kGroups; ++group) {
      decode_group<Lanes == 1>(
          d, records, [&](auto step, auto lane, __m512i w0, __m512i w1) __attribute__((always_inline)) {
            chains.template add<decltype(step)::kValue, decltype(lane)::kValue>(w0, w1);
          });
      chains.x += 2 * D::kOctets * D::kOperands;
    }
  }
  chains.store(g);
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
template <int Lanes, int Tokens>
void fused_near(const GemmSegment& g) {
  using D = PlainFp4Decoder;
  const D d;
  Chains<false, Lanes, Tokens> chains(g);
  Records<D, Lanes> records(g);
  __m512i unit[Lanes][2];
  const auto change_units = [&](auto i, __m512i next) __attribute__((always_inline)) {
    constexpr int kLane = decltype(i)::kValue / 2, kPanel = decltype(i)::kValue % 2;
    const __m512 factor = power_of_two(_mm512_sub_epi32(next, unit[kLane][kPanel]));
    repeat<Tokens>([&](auto t) __attribute__((always_inline)) {
      chains.sum[kLane][kPanel][t] = _mm512_mul_ps(chains.sum[kLane][kPanel][t], factor);
    });
    unit[kLane][kPanel] = next;
  };
  repeat<2 * Lanes>([&](auto i) __attribute__((always_inline)) { unit[i / 2][i % 2] = _mm512_set1_epi32(127); });
  for (std::int64_t left = g.k_pairs; left > 0; left -= kRecordPairs<D>) {
    records.open();
    for (int group = 0; group < D::kGroups; ++group) {
      repeat<2 * Lanes>([&](auto i) __attribute__((always_inline)) {
        change_units(i, scale_exponents(records.scales + i / 2 * D::kScaleBytes + i % 2 * kPanelRows));
      });
      decode_group<Lanes == 1>(
          d, records, [&](auto step, auto lane, __m512i w0, __m512i w1) __attribute__((always_inline)) {
            chains.template add<decltype(step)::kValue, decltype(lane)::kValue>(w0, w1);
          });
      chains.x += 2 * D::kOctets * D::kOperands;
    }
  }
  repeat<2 * Lanes>([&](auto i) __attribute__((always_inline)) { change_units(i, _mm512_set1_epi32(127)); });
  chains.store(g);
}

template <class D>
void decode(const DecodeArgs& a) {
  const D d;
  char* to = static_cast<char*>(a.panels);
  Records<D, 1> records(a.weights, a.lanes, a.lane);
  for (std::int64_t left = a.k_pairs; left > 0; left -= kRecordPairs<D>) {
    records.open();
    for (int group = 0; group < D::kGroups; ++group) {
      decode_group<false>(
          d, records, [&](auto, auto, __m512i w0, __m512i w1) __attribute__((always_inline)) {
            _mm512_store_si512(to, w0);
            _mm512_store_si512(to + kLineBytes, w1);
            to += 2 * kLineBytes;
          });
    }
  }
}

template <class D, bool Scaled, int Lanes, int Most>
constexpr void fill_lanes(GemmKernel (&table)[kFusedTokens + 1]) {
  [&]<int... I>(std::integer_sequence<int, I...>) { ((table[I + 1] = fused<D, Scaled, Lanes, I + 1>), ...); }
  (std::make_integer_sequence<int, Most>{});
}

template <class D, bool Scaled = false>
constexpr void fill_fused(GemmKernel (&table)[kMostLanes][kFusedTokens + 1]) {
  fill_lanes<D, Scaled, 1, D::kMostTokens>(table[0]);
  fill_lanes<D, Scaled, 2, D::kMostChains / 2>(table[1]);
  fill_lanes<D, Scaled, 3, D::kMostChains / 3>(table[2]);
}

template <int Lanes, int Most>
constexpr void fill_near(GemmKernel (&table)[kFusedTokens + 1]) {
  [&]<int... I>(std::integer_sequence<int, I...>) { ((table[I + 1] = fused_near<Lanes, I + 1>), ...); }
  (std::make_integer_sequence<int, Most>{});
}

constexpr void fill_fused_near(GemmKernel (&table)[kMostLanes][kFusedTokens + 1]) {
  constexpr int kMostChains = 12;
  fill_near<1, kFusedTokens>(table[0]);
  fill_near<2, kMostChains / 2>(table[1]);
  fill_near<3, kMostChains / 3>(table[2]);
}

template <class D>
constexpr void use_decoder(GemmKernels& table) {
  constexpr int kFormat = static_cast<int>(D::kFormat);
  fill_fused<D>(table.fused[kFormat]);
  table.decode[kFormat] = decode<D>;
}

}  // namespace
}  // namespace sluice::cpu
