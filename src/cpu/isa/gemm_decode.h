// Stored panels (gemm_kernels.h) > weights in f32 or bf16 panels, over a vector class V: by look-ups of 16 bytes and
// shifts, which every instruction set has. Included by the units; exact, so that every unit decodes to the same bits
// (values below 2^-126 apart, which may become zero).
//
// Beside what gemm_body.h asks for, V has I, 64 bytes or 16 numbers of 32 bits, and functions on it.
#pragma once

#include "cpu/isa/gemm_body.h"

namespace sluice::cpu {
namespace {

constexpr int kStoredLine = 2 * kLineBytes;  // a step of both panels, stored, and a k pair of both, decoded

// bf16 bits of a magnitude of e4m3 (bits 0-6).
constexpr std::uint32_t e4m3_to_bf16(std::uint32_t magnitude) {
  if (magnitude == 0x7F) return 0x7FC0;
  if (magnitude >= 8) return (magnitude << 4) + (120u << 7);
  std::uint32_t exponent = 121, mantissa = magnitude;  // magnitude * 2^-9
  if (magnitude == 0) return 0;
  while (mantissa < 8) {
    mantissa <<= 1;
    --exponent;
  }
  return exponent << 7 | (mantissa & 7u) << 4;
}

struct alignas(16) LookUp {
  std::uint8_t v[16];
};

// A byte of bf16 by e2m1 code, times 2^Exponent.
template <int Shift, int Exponent>
constexpr LookUp e2m1_bytes() {
  constexpr std::uint32_t kBf16[8] = {0, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0};
  LookUp t{};
  for (int i = 0; i < 16; ++i) {
    const std::uint32_t magnitude = i % 8 == 0 ? 0 : kBf16[i % 8] + (Exponent * 128);
    t.v[i] = static_cast<std::uint8_t>((magnitude | static_cast<std::uint32_t>(i) / 8 << 15) >> Shift);
  }
  return t;
}

// A k pair of 16 rows: weights in f32.
template <class V>
struct WeightPair {
  typename V::F even, odd;
};

// A decoder has the constants that gemm_fused.h describes; scale(), what a group of rows needs; pair<j>() of a line.

template <class V>
struct PlainFp8 {
  static constexpr Format kFormat = Format::fp8;
  static constexpr int kGroups = 1, kOctets = 4, kPairs = 2, kScaleBytes = 0;
  struct Scale {};

  static SLUICE_INLINE Scale scale(const char*) { return {}; }
  // The sign stays, and the magnitude moves into the exponent and mantissa of f32, 2^-120 of its value: subnormals are
  // subnormals again, and the product is exact. The code of NaN would be 480.
  static SLUICE_INLINE typename V::F value(typename V::I top) {
    const typename V::F scaled = V::floats(V::bits_and(V::template shift_right_signed<4>(top), 0x87F00000u));
    return V::mul(scaled, V::broadcast(0x1p120f));
  }
  static SLUICE_INLINE typename V::F nan_above_448(typename V::F v) {
    return V::less(V::broadcast(448.0f), V::abs(v), V::broadcast(__builtin_nanf("")), v);
  }
  template <int J>
  static SLUICE_INLINE WeightPair<V> pair(typename V::I line, Scale) {
    const typename V::I bytes = J == 0 ? V::interleave_low(V::no_bits(), line) : V::interleave_high(V::no_bits(), line);
    WeightPair<V> w{value(V::template shift_left<16>(bytes)), value(bytes)};
    if (__builtin_expect(V::has_e4m3_nan(line), 0)) w = {nan_above_448(w.even), nan_above_448(w.odd)};
    return w;
  }
};

// bf16 pairs times the scales of the rows.
template <class V>
SLUICE_INLINE WeightPair<V> scaled_pair(typename V::I bf16, typename V::F scale) {
  return {V::mul(V::floats(V::template shift_left<16>(bf16)), scale),
          V::mul(V::floats(V::bits_and(bf16, 0xFFFF0000u)), scale)};
}

template <class V>
struct PlainNvfp4 {
  static constexpr Format kFormat = Format::nvfp4;
  static constexpr int kGroups = 4, kOctets = 2, kPairs = 4, kScaleBytes = 128;
  static constexpr LookUp kLow = e2m1_bytes<0, 0>(), kHigh = e2m1_bytes<8, 0>();
  using Scale = typename V::F;

  // (1 + m / 8) * 2^(8 - E) of E * 8 + m.
  static SLUICE_INLINE Scale scale(const char* p) {
    const typename V::I byte = V::template shift_left<20>(V::bytes_to_32(p));
    const typename V::I m = V::bits_and(byte, 7u << 20);
    return V::floats(V::add_32(V::sub_32(V::broadcast_32(135u << 23), byte), V::add_32(m, m)));
  }
  template <int J>
  static SLUICE_INLINE WeightPair<V> pair(typename V::I line, Scale s) {
    const typename V::I half = J < 2 ? line : V::template shift_right<4>(line);
    const typename V::I codes = V::bits_and(half, 0x0F0F0F0Fu);
    const typename V::I low = V::look_up(kLow, codes), high = V::look_up(kHigh, codes);
    return scaled_pair<V>(J % 2 == 0 ? V::interleave_low(low, high) : V::interleave_high(low, high), s);
  }
};

template <class V>
struct PlainMxfp4 {
  static constexpr Format kFormat = Format::mxfp4;
  static constexpr int kGroups = 2, kOctets = 4, kPairs = 4, kScaleBytes = 64;
  static constexpr LookUp kLow = e2m1_bytes<0, -1>(), kHigh = e2m1_bytes<8, -1>();
  using Scale = typename V::F;

  // 2^(128 - byte): codes are looked up as their halves, because 2^-127 would be subnormal.
  static SLUICE_INLINE Scale scale(const char* p) {
    return V::floats(V::template shift_left<23>(V::sub_32(V::broadcast_32(255u), V::bytes_to_32(p))));
  }
  template <int J>
  static SLUICE_INLINE WeightPair<V> pair(typename V::I line, Scale s) {
    const typename V::I codes = V::bits_and(V::template shift_right<4 * J>(line), 0x000F000Fu);
    const typename V::I low = V::look_up(kLow, codes), high = V::look_up(kHigh, codes);
    return scaled_pair<V>(V::add_32(low, V::template shift_left<8>(high)), s);
  }
};

// Calls use(panel, step, weights) for all k pairs of a segment, panel after panel of each line; step counts the pairs
// from the first of a line. next(pairs) follows each line.
template <class V, class D, class Use, class Next>
SLUICE_INLINE void for_each_pair(const void* weights, int lanes, int lane, std::int64_t k_pairs, Use use, Next next) {
  constexpr int kCodeBytes = D::kGroups * D::kOctets * kStoredLine;
  const auto* record = static_cast<const char*>(weights);
  for (std::int64_t k = 0; k < k_pairs; k += D::kGroups * D::kOctets * D::kPairs) {
    const char* scales = record + lane * D::kScaleBytes;
    const char* codes = record + lanes * D::kScaleBytes + lane * kStoredLine;
    record += lanes * (D::kScaleBytes + kCodeBytes);
    for (int group = 0; group < D::kGroups; ++group, scales += kPairRows) {
      const typename D::Scale s[2] = {D::scale(scales), D::scale(scales + kPanelRows)};
      for (int octet = 0; octet < D::kOctets; ++octet, codes += lanes * kStoredLine) {
        repeat<2>([&](auto panel) __attribute__((always_inline)) {
          const typename V::I line = V::load_bits(codes + panel * kLineBytes);
          repeat<D::kPairs>([&](auto j) __attribute__((always_inline)) {
            use(panel, j, D::template pair<decltype(j)::kValue>(line, s[panel]));
          });
        });
        next();
      }
    }
  }
}

template <class V, class D>
void decode_plain(const DecodeArgs& a) {
  char* to = static_cast<char*>(a.panels);
  for_each_pair<V, D>(
      a.weights, a.lanes, a.lane, a.k_pairs,
      [&](int panel, int j, const WeightPair<V>& w)
          __attribute__((always_inline)) { V::store_pair(to + j * kStoredLine + panel * kLineBytes, w.even, w.odd); },
      [&]() __attribute__((always_inline)) { to += D::kPairs * kStoredLine; });
}

// Weights decoded in registers for f32 inputs.
template <class V, class D, bool Scaled, int Tokens>
void fused_plain(const GemmSegment& g) {
  typename V::F acc[2][Tokens];
  repeat<2 * Tokens>([&](auto i) __attribute__((always_inline)) { acc[i / Tokens][i % Tokens] = V::zero(); });
  const auto* x = static_cast<const float*>(g.x);
  for_each_pair<V, D>(
      g.weights, g.lanes, g.lane, g.k_pairs,
      [&](auto panel, int j, const WeightPair<V>& w) __attribute__((always_inline)) {
        repeat<Tokens>([&](auto t) __attribute__((always_inline)) {
          const float* pair = x + t * kSegmentK + 2 * j;
          typename V::F& sum = acc[panel][t];
          sum = V::fma(w.odd, V::broadcast(pair[1]), V::fma(w.even, V::broadcast(pair[0]), sum));
        });
      },
      [&]() __attribute__((always_inline)) { x += 2 * D::kPairs; });
  repeat<2 * Tokens>([&](auto i) __attribute__((always_inline)) {
    add_chain<V, Scaled>(g, i / Tokens, i % Tokens, Tokens, acc[i / Tokens][i % Tokens]);
  });
}

template <class V, class D, bool Scaled = false>
constexpr void fill_fused_plain(GemmKernel (&table)[kMostLanes][kFusedTokens + 1]) {
  [&]<int... I>(std::integer_sequence<int, I...>) { ((table[0][I + 1] = fused_plain<V, D, Scaled, I + 1>), ...); }
  (std::make_integer_sequence<int, V::kFusedPlainTokens>{});
}

}  // namespace
}  // namespace sluice::cpu
