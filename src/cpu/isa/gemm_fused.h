// Kernels that decode stored panels in registers, for avx512_bf16 (with VBMI): operands in the layout of vdpbf16ps from
// one line of codes, then either multiplied at once for up to kFusedTokens tokens, or stored for larger blocks.
// Included by that unit only.
#pragma once

#include <immintrin.h>

#include "cpu/isa/gemm_decoders.h"

namespace sluice::cpu {
namespace {

// Bytes that a single lane is fetched ahead. All lanes together are read strictly in order, which hardware follows
// best when nothing is fetched ahead; a single lane leaves out lines, and the chains of one lane hide less latency.
constexpr int kFusedAhead = 6144;

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

// 16 bytes as numbers.
SLUICE_INLINE __m512i bytes_to_numbers(const char* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Factors that take sums from the unit of a block into that of the next, powers of two.
template <class D, int Lanes>
struct NearUnits {
  __m512i unit[Lanes][2];
  const char* scales = nullptr;

  SLUICE_INLINE NearUnits() {
    repeat<2 * Lanes>([&](auto i)
                          __attribute__((always_inline)) { unit[i / 2][i % 2] = _mm512_set1_epi32(D::kUnitOfOne); });
  }
  SLUICE_INLINE void open(const char* record_scales) { scales = record_scales; }
  SLUICE_INLINE void close() {}
  SLUICE_INLINE __m512 factor(int lane, int group, int panel) {
    const char* p = scales + lane * D::kScaleBytes + group * kPairRows + panel * kPanelRows;
    return to(lane, panel, bytes_to_numbers(p));
  }
  SLUICE_INLINE __m512 last_factor(int lane, int panel) { return to(lane, panel, _mm512_set1_epi32(D::kUnitOfOne)); }

 private:
  SLUICE_INLINE __m512 to(int lane, int panel, __m512i next) {
    const __m512i exponent = _mm512_add_epi32(_mm512_sub_epi32(next, unit[lane][panel]), _mm512_set1_epi32(127));
    unit[lane][panel] = next;
    return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
  }
};

// The same for the scales of a record at once, which takes fewer instructions where they have to be unpacked. (With
// mxfp4 it is as fast in L2, but slower from memory: docs/performance-cpu.md.)
template <class D, int Lanes>
struct RecordUnits {
  static constexpr int kParts = D::kScaleBytes / kLineBytes;
  alignas(64) char exponents[Lanes * D::kScaleBytes];  // of the factors, as f32 has them, in the order of the scales
  __m512i last[Lanes];                                 // units of the last two groups

  SLUICE_INLINE RecordUnits() {
    for (__m512i& units : last) units = _mm512_set1_epi8(D::kUnitOfOne);
  }
  SLUICE_INLINE void open(const char* scales) {
    repeat<Lanes * kParts>([&](auto i) __attribute__((always_inline)) {
      to(i / kParts, i * kLineBytes, D::units(_mm512_loadu_si512(scales + i * kLineBytes)));
    });
  }
  SLUICE_INLINE void close() {
    repeat<Lanes>([&](auto lane) __attribute__((always_inline)) {
      to(lane, lane * D::kScaleBytes, _mm512_set1_epi8(D::kUnitOfOne));
    });
  }
  SLUICE_INLINE __m512 factor(int lane, int group, int panel) const {
    const char* p = exponents + lane * D::kScaleBytes + group * kPairRows + panel * kPanelRows;
    return _mm512_castsi512_ps(_mm512_slli_epi32(bytes_to_numbers(p), 23));
  }
  SLUICE_INLINE __m512 last_factor(int lane, int panel) const { return factor(lane, 0, panel); }

 private:
  // Two groups of two panels; before them come the second one of `last` and their own first one.
  SLUICE_INLINE void to(int lane, int place, __m512i units) {
    const __m512i before = _mm512_alignr_epi64(units, last[lane], 4);
    const __m512i difference = _mm512_sub_epi8(units, before);
    _mm512_store_si512(exponents + place, _mm512_add_epi8(difference, _mm512_set1_epi8(127)));
    last[lane] = units;
  }
};

// Sums in units of (the exponent of) the scale of the block at hand: going to the next block they are multiplied by a
// power of two, which rounds nothing, instead of every weight. The bits are those of `fused` as long as no exponent
// leaves its range.
template <class D, template <class, int> class Units, int Lanes, int Tokens>
void fused_near(const GemmSegment& g) {
  const D d;
  Chains<false, Lanes, Tokens> chains(g);
  Records<D, Lanes> records(g);
  Units<D, Lanes> units;
  const auto multiply = [&](auto i, __m512 factor) __attribute__((always_inline)) {
    repeat<Tokens>([&](auto t) __attribute__((always_inline)) {
      chains.sum[i / 2][i % 2][t] = _mm512_mul_ps(chains.sum[i / 2][i % 2][t], factor);
    });
  };
  for (std::int64_t left = g.k_pairs; left > 0; left -= kRecordPairs<D>) {
    records.open();
    units.open(records.scales);
    for (int group = 0; group < D::kGroups; ++group) {
      repeat<2 * Lanes>([&](auto i) __attribute__((always_inline)) { multiply(i, units.factor(i / 2, group, i % 2)); });
      decode_group<Lanes == 1>(
          d, records, [&](auto step, auto lane, __m512i w0, __m512i w1) __attribute__((always_inline)) {
            chains.template add<decltype(step)::kValue, decltype(lane)::kValue>(w0, w1);
          });
      chains.x += 2 * D::kOctets * D::kOperands;
    }
  }
  units.close();
  repeat<2 * Lanes>([&](auto i) __attribute__((always_inline)) { multiply(i, units.last_factor(i / 2, i % 2)); });
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

template <class D, template <class, int> class Units, int Lanes, int Most>
constexpr void fill_near(GemmKernel (&table)[kFusedTokens + 1]) {
  [&]<int... I>(std::integer_sequence<int, I...>) { ((table[I + 1] = fused_near<D, Units, Lanes, I + 1>), ...); }
  (std::make_integer_sequence<int, Most>{});
}

constexpr void fill_fused_near(GemmKernel (&table)[kMostLanes][kFusedTokens + 1]) {
  constexpr int kMostChains = 12;
  fill_near<PlainFp4Decoder, NearUnits, 1, kFusedTokens>(table[0]);
  fill_near<PlainFp4Decoder, NearUnits, 2, kMostChains / 2>(table[1]);
  fill_near<PlainFp4Decoder, NearUnits, 3, kMostChains / 3>(table[2]);
}

// The scales of NVFP4 lie between 2^-9 and 2^9, so sums in units of them are always possible, for inputs between 2^-100
// and 2^100; up to this many tokens that is less work than decoding the exponents.
constexpr int kUnitTokens = 4;

constexpr void use_nvfp4_units(GemmKernel (&table)[kMostLanes][kFusedTokens + 1]) {
  fill_near<UnitNvfp4Decoder, RecordUnits, 1, kUnitTokens>(table[0]);
  fill_near<UnitNvfp4Decoder, RecordUnits, 2, kUnitTokens>(table[1]);
  fill_near<UnitNvfp4Decoder, RecordUnits, 3, kUnitTokens>(table[2]);
}

template <class D>
constexpr void use_decoder(GemmKernels& table) {
  constexpr int kFormat = static_cast<int>(D::kFormat);
  fill_fused<D>(table.fused[kFormat]);
  table.decode[kFormat] = decode<D>;
}

}  // namespace
}  // namespace sluice::cpu
