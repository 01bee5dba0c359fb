// What surrounds the GEMM kernels, over a vector class V (see gemm_body.h): packing inputs into blocks, storing totals,
// activating them, the weighted sum over slots, and the ceilings for benches.
#pragma once

#include "cpu/isa/gemm_activation.h"
#include "cpu/isa/gemm_decode.h"
#include "cpu/isa/gemm_quantize.h"

namespace sluice::cpu {
namespace {

// `count` columns of one row, at most a segment, into `to`; `scale` is nullptr or the row's factor.
template <class V>
void pack_columns(const PackArgs& a, const char* from, std::int64_t count, const float* scale, char* to) {
  if (a.from == a.to && scale == nullptr) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes_of(a.to, count)));
  } else {
    for (std::int64_t c = 0; c < count; c += kLanes) {
      const std::int64_t lanes = count - c < kLanes ? count - c : kLanes;
      typename V::F v = load_elements<V>(from + bytes_of(a.from, c), a.from, lanes);
      if (scale != nullptr) v = V::round_bf16(V::mul(v, V::broadcast(*scale)));
      store_elements<V>(to + bytes_of(a.to, c), a.to, v, lanes);
    }
  }
  const std::int64_t stored = (count + kStoredK - 1) / kStoredK * kStoredK;
  std::memset(to + bytes_of(a.to, count), 0, static_cast<std::size_t>(bytes_of(a.to, stored - count)));
}

template <class V>
void pack(const PackArgs& a) {
  for (int t = 0; t < a.tokens; ++t) {
    const std::int64_t row = a.rows != nullptr ? a.rows[t] : t;
    const char* from = static_cast<const char*>(a.x) + bytes_of(a.from, row * a.row_stride);
    const float* scale = a.scale != nullptr ? a.scale + t : nullptr;
    for (std::int64_t c = 0, s = 0; c < a.cols; c += kSegmentK, ++s) {
      const std::int64_t count = a.cols - c < kSegmentK ? a.cols - c : kSegmentK;
      char* to = static_cast<char*>(a.block) + bytes_of(a.to, (s * a.tokens + t) * kSegmentK);
      pack_columns<V>(a, from + bytes_of(a.from, c), count, scale, to);
    }
  }
}

// The output of panel `panel` for token `t` of a block of `tokens`.
template <class V>
SLUICE_INLINE typename V::F finished(const float* totals, const Epilogue& e, int panel, int t, int tokens) {
  typename V::F v = V::load(totals + (panel * tokens + t) * kPanelRows);
  if (e.token_scale != nullptr) v = V::mul(v, V::broadcast(e.token_scale[t]));
  if (e.output_scale != nullptr) v = V::mul(v, V::load(e.output_scale + panel * kPanelRows));
  if (e.round_scaled) v = V::round_bf16(v);
  return e.bias == nullptr ? v : V::add(v, V::load(e.bias + panel * kPanelRows));
}

template <class V>
void store(const StoreArgs& a) {
  for (int t = 0; t < a.tokens; ++t) {
    const std::int64_t row = a.rows != nullptr ? a.rows[t] : t;
    char* y = static_cast<char*>(a.y) + bytes_of(a.to, row * a.row_stride);
    for (int p = 0; p < 2 && p * kPanelRows < a.columns; ++p) {
      const int columns = a.columns - p * kPanelRows < kPanelRows ? a.columns - p * kPanelRows : kPanelRows;
      char* to = y + bytes_of(a.to, p * kPanelRows);
      typename V::F v = finished<V>(a.totals, a.epilogue, p, t, a.tokens);
      if (a.round_bf16) v = V::round_bf16(v);
      if (a.accumulate) v = V::add(load_elements<V>(to, a.to, columns), v);
      store_elements<V>(to, a.to, v, columns);
    }
  }
}

// Lanes from `columns` on become zero: what GEMM2 reads there is multiplied by zero weights, and must not be a NaN.
template <class V>
SLUICE_INLINE void store_intermediate(const ActivateArgs& a, char* to, typename V::F value, int columns) {
  if (columns < kPanelRows) {
    alignas(64) float lanes[kPanelRows];
    V::store(lanes, value);
    for (int i = columns > 0 ? columns : 0; i < kPanelRows; ++i) lanes[i] = 0.0f;
    value = V::load(lanes);
  }
  store_elements<V>(to, a.to, a.round_out ? V::round_bf16(value) : value);
}

template <class V>
void activate(const ActivateArgs& a) {
  for (int t = 0; t < a.tokens; ++t) {
    char* to = static_cast<char*>(a.block) + bytes_of(a.to, t * a.row_stride);
    const typename V::F first = finished<V>(a.totals, a.epilogue, 0, t, a.tokens);
    const typename V::F second = finished<V>(a.totals, a.epilogue, 1, t, a.tokens);
    if (a.gated) {
      store_intermediate<V>(a, to, activation<V>(a.numbers, first, second), a.columns);
    } else {
      store_intermediate<V>(a, to, activation<V>(a.numbers, first, first), a.columns);
      store_intermediate<V>(a, to + bytes_of(a.to, kPanelRows), activation<V>(a.numbers, second, second),
                            a.columns - kPanelRows);
    }
  }
}

template <class V>
void activate_row(const ActivateRowArgs& a) {
  for (std::int64_t c = 0; c < a.count; c += kLanes) {
    const std::int64_t lanes = a.count - c < kLanes ? a.count - c : kLanes;
    const typename V::F up = load_elements<V>(reinterpret_cast<const char*>(a.up + c), Element::f32, lanes);
    typename V::F gate = up;
    if (a.gate != nullptr) gate = load_elements<V>(reinterpret_cast<const char*>(a.gate + c), Element::f32, lanes);
    store_elements<V>(static_cast<char*>(a.out) + bytes_of(a.to, c), a.to, activation<V>(a.numbers, gate, up), lanes);
  }
}

template <class V>
void combine(const CombineArgs& a) {
  for (std::int64_t c = 0; c < a.columns; c += kLanes) {
    const std::int64_t lanes = a.columns - c < kLanes ? a.columns - c : kLanes;
    typename V::F sum = V::zero();
    for (int s = 0; s < a.slots; ++s) {
      const char* row = static_cast<const char*>(a.rows[s]) + bytes_of(Element::bf16, c);
      sum = V::add(sum, V::mul(V::broadcast(a.weights[s]), load_elements<V>(row, Element::bf16, lanes)));
    }
    store_elements<V>(static_cast<char*>(a.out) + bytes_of(a.to, c), a.to, sum, lanes);
  }
}

// As many sums as a kernel has, from registers only. Zero weights keep the sums finite for any number of rounds.
template <class M>
std::int64_t peak_loop(std::int64_t rounds) {
  using V = typename M::Vector;
  constexpr int kSums = V::kPanels * V::kTokens;
  alignas(64) const char zeros[M::kRecordBytes] = {};
  alignas(64) const typename M::X x[2] = {};
  typename V::F acc[1][kSums];
  repeat<kSums>([&](auto i) __attribute__((always_inline)) { acc[0][i] = V::broadcast(static_cast<float>(i)); });
  const typename M::W w = M::load(zeros, 0);
  for (std::int64_t r = 0; r < rounds; ++r) {
    repeat<kSums>([&](auto i) __attribute__((always_inline)) { acc[0][i] = M::mac(acc[0][i], w, x); });
  }
  alignas(64) volatile float sink[kPanelRows];
  alignas(64) float lanes[kPanelRows];
  repeat<kSums>([&](auto i) __attribute__((always_inline)) {
    V::store(lanes, acc[0][i]);
    sink[0] = lanes[0];
  });
  return rounds * kSums * kPanelRows * 2 * 2;
}

template <class V>
std::uint64_t read_loop(const void* data, std::size_t bytes) {
  constexpr int kChains = 4;
  const auto* from = static_cast<const float*>(data);
  typename V::F acc[1][kChains];
  repeat<kChains>([&](auto i) __attribute__((always_inline)) { acc[0][i] = V::zero(); });
  for (std::size_t b = 0; b < bytes; b += kChains * kLineBytes, from += kChains * kPanelRows) {
    repeat<kChains>([&](auto i) __attribute__((always_inline)) {
      acc[0][i] = V::bit_xor(acc[0][i], V::load(from + i * kPanelRows));
    });
  }
  alignas(64) float lanes[kPanelRows];
  V::store(lanes, V::bit_xor(V::bit_xor(acc[0][0], acc[0][1]), V::bit_xor(acc[0][2], acc[0][3])));
  std::uint64_t word = 0;
  std::memcpy(&word, lanes, sizeof(word));
  return word;
}

// The whole table. `Bf16` multiplies for the bf16 recipe.
template <class V, class Bf16>
constexpr GemmKernels make_table(const char* name, Element bf16_x) {
  GemmKernels table;
  table.name = name;
  table.bf16_x = bf16_x;
  fill<Bf16>(table.bf16);
  fill<Bf16Weights<V>>(table.f32_bf16);
  fill<F32Weights<V>>(table.f32);
  fill<Bf16, true>(table.bf16_scaled);
  table.decode[static_cast<int>(Format::fp8)] = decode_plain<V, PlainFp8<V>>;
  table.decode[static_cast<int>(Format::nvfp4)] = decode_plain<V, PlainNvfp4<V>>;
  table.decode[static_cast<int>(Format::mxfp4)] = decode_plain<V, PlainMxfp4<V>>;
  table.quantize = quantize<V>;
  table.pack = pack<V>;
  table.store = store<V>;
  table.activate = activate<V>;
  table.activate_row = activate_row<V>;
  table.combine = combine<V>;
  table.peak_loop = peak_loop<Bf16>;
  table.read_loop = read_loop<V>;
  return table;
}

// The table of a unit that multiplies f32 inputs, with kernels that decode weights in registers.
template <class V>
constexpr GemmKernels make_plain_table(const char* name) {
  GemmKernels table = make_table<V, Bf16Weights<V>>(name, Element::f32);
  fill_fused_plain<V, PlainFp8<V>>(table.fused[static_cast<int>(Format::fp8)]);
  fill_fused_plain<V, PlainFp8<V>, true>(table.fused_scaled);
  fill_fused_plain<V, PlainNvfp4<V>>(table.fused[static_cast<int>(Format::nvfp4)]);
  fill_fused_plain<V, PlainMxfp4<V>>(table.fused[static_cast<int>(Format::mxfp4)]);
  return table;
}

}  // namespace
}  // namespace sluice::cpu
