// GEMM kernels over a vector class V, included once by the unit of each instruction set after it has defined V.
//
// Everything is in an anonymous namespace: a template instance compiled with wide instructions must never be merged by
// the linker with that of another unit. For the same reason only <cstdint>, <cstring> and <utility> are included.
//
// V has: F, a value of 16 f32 lanes; kPanels and kTokens, the part of a block whose sums stay in registers;
// kBothPanelTokens, up to which the sums of both panels do; kSteps, the k pairs unrolled; and the static functions used
// below. Loops over registers are unrolled by the language (repeat), because GCC keeps an array of accumulators in
// memory when it unrolls the loop too late: 2.3 times slower, and visible only in the disassembly.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "cpu/isa/gemm_kernels.h"

#define SLUICE_INLINE inline __attribute__((always_inline))

namespace sluice::cpu {
namespace {

// Not std::integral_constant: its conversion operator would be a function that other units have too.
template <int I>
struct Index {
  static constexpr int kValue = I;
  SLUICE_INLINE constexpr operator int() const { return I; }  // NOLINT(google-explicit-constructor)
};

template <int N, class Body>
SLUICE_INLINE void repeat(Body body) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) { (body(Index<I>{}), ...); }
  (std::make_integer_sequence<int, N>{});
}

constexpr int kLineBytes = 64;  // of one panel in a record: 16 rows x 2 bf16, or 16 rows x 1 f32

// How products of one k pair are added: x in f32 against bf16 weights widened exactly, or against f32 weights.
template <class V>
struct Bf16Weights {
  using Vector = V;
  using X = float;
  struct W {
    typename V::F even, odd;
  };
  static constexpr int kRecordBytes = 128;  // a pair of panels, two k
  static SLUICE_INLINE W load(const char* record, int panel) {
    const char* line = record + panel * kLineBytes;
    return {V::bf16_even(line), V::bf16_odd(line)};
  }
  static SLUICE_INLINE typename V::F mac(typename V::F acc, const W& w, const X* x) {
    return V::fma(w.odd, V::broadcast(x[1]), V::fma(w.even, V::broadcast(x[0]), acc));
  }
};

template <class V>
struct F32Weights {
  using Vector = V;
  using X = float;
  using W = typename Bf16Weights<V>::W;
  static constexpr int kRecordBytes = 256;
  static SLUICE_INLINE W load(const char* record, int panel) {
    const auto* line = reinterpret_cast<const float*>(record + panel * kLineBytes);
    return {V::load(line), V::load(line + kPairRows)};
  }
  static SLUICE_INLINE typename V::F mac(typename V::F acc, const W& w, const X* x) {
    return Bf16Weights<V>::mac(acc, w, x);
  }
};

// Adds the chain of one token and panel to its total.
template <class V, bool Scaled>
SLUICE_INLINE void add_chain(const GemmSegment& g, int panel, int token, int block_tokens, typename V::F chain) {
  float* total = g.totals + (panel * block_tokens + token) * kPanelRows;
  if constexpr (Scaled) {
    chain = V::mul(chain, V::broadcast(g.x_scale[token * g.x_scale_stride] * g.w_scale[panel]));
  }
  V::store(total, V::add(g.first ? V::zero() : V::load(total), chain));
}

// `Steps` k pairs of `Panels` x `Tokens` sums.
template <class M, int Panels, int Tokens, int Steps, class F>
SLUICE_INLINE void multiply(F (&acc)[Panels][Tokens], const char* weights, const typename M::X* x) {
  repeat<Steps>([&](auto step) __attribute__((always_inline)) {
    typename M::W w[Panels];
    repeat<Panels>([&](auto p) __attribute__((always_inline)) { w[p] = M::load(weights + step * M::kRecordBytes, p); });
    repeat<Tokens>([&](auto t) __attribute__((always_inline)) {
      repeat<Panels>([&](auto p) __attribute__((always_inline)) {
        acc[p][t] = M::mac(acc[p][t], w[p], x + t * kSegmentK + step * 2);
      });
    });
  });
}

// Sums of one segment for tokens [first, first + Tokens) of a block of `block_tokens`, panels from `panel` on.
template <class M, bool Scaled, int Panels, int Tokens>
SLUICE_INLINE void segment_part(const GemmSegment& g, int panel, int first, int block_tokens, int prefetch_lines) {
  using V = typename M::Vector;
  constexpr int kSteps = V::kSteps;
  typename V::F acc[Panels][Tokens];
  repeat<Panels * Tokens>([&](auto i) __attribute__((always_inline)) { acc[i / Tokens][i % Tokens] = V::zero(); });

  const char* weights = static_cast<const char*>(g.weights) + panel * kLineBytes;
  const auto* x = static_cast<const typename M::X*>(g.x) + first * kSegmentK;
  const char* ahead = static_cast<const char*>(g.prefetch);
  std::int64_t left = g.k_pairs;
  for (; left >= kSteps; left -= kSteps) {
    for (int i = 0; i < prefetch_lines; ++i, ahead += 64) __builtin_prefetch(ahead, 0, 2);
    multiply<M, Panels, Tokens, kSteps>(acc, weights, x);
    weights += kSteps * M::kRecordBytes;
    x += kSteps * 2;
  }
  for (; left > 0; --left) {
    multiply<M, Panels, Tokens, 1>(acc, weights, x);
    weights += M::kRecordBytes;
    x += 2;
  }

  repeat<Panels * Tokens>([&](auto i) __attribute__((always_inline)) {
    add_chain<V, Scaled>(g, panel + i / Tokens, first + i % Tokens, block_tokens, acc[i / Tokens][i % Tokens]);
  });
}

template <class M, bool Scaled, int BlockTokens>
void segment(const GemmSegment& g) {
  using V = typename M::Vector;
  // Few tokens have too few sums in one panel to hide the latency of an addition: both panels at once.
  if constexpr (BlockTokens <= V::kBothPanelTokens) {
    return segment_part<M, Scaled, 2, BlockTokens>(g, 0, 0, BlockTokens, g.prefetch_lines);
  }
  constexpr int kWhole = BlockTokens / V::kTokens * V::kTokens;
  constexpr int kRest = BlockTokens - kWhole;
  for (int panel = 0; panel < 2; panel += V::kPanels) {
    int lines = panel == 0 ? g.prefetch_lines : 0;  // once for all parts of the block
    for (int first = 0; first < kWhole; first += V::kTokens, lines = 0) {
      segment_part<M, Scaled, V::kPanels, V::kTokens>(g, panel, first, BlockTokens, lines);
    }
    if constexpr (kRest > 0) segment_part<M, Scaled, V::kPanels, kRest>(g, panel, kWhole, BlockTokens, lines);
  }
}

template <class M, bool Scaled = false>
constexpr void fill(GemmKernel (&table)[kBlockTokens + 1]) {
  [&]<int... I>(std::integer_sequence<int, I...>) { ((table[I + 1] = segment<M, Scaled, I + 1>), ...); }
  (std::make_integer_sequence<int, kBlockTokens>{});
}

}  // namespace
}  // namespace sluice::cpu
