// Loops over one row: norm, sums, conversions, rope, activations. Included after ops_math.h; internal linkage.
#pragma once

#include <cstdint>

#include "cpu/ops_kernels.h"

namespace sluice::cpu {
namespace {

// Calls f(offset, lanes) for each vector of a row, the last with what is left. Whole vectors see the constant 16.
template <class F>
inline void for_vectors(std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, 16);
  if (i < n) f(i, static_cast<int>(n - i));
}

inline V load_some(const float* p, int lanes) { return lanes == 16 ? load(p) : load_part(p, lanes); }

inline void store_some(float* p, V x, int lanes) {
  if (lanes == 16) {
    store(p, x);
  } else {
    store_part(p, x, lanes);
  }
}

inline void store_some(std::uint16_t* p, V x, int lanes) {
  if (lanes == 16) return store_bf16(p, x);
  std::uint16_t all[16];
  store_bf16(all, x);
  for (int i = 0; i < lanes; ++i) p[i] = all[i];
}

inline V load_some(const std::uint16_t* p, int lanes) {
  if (lanes == 16) return load_bf16(p);
  std::uint16_t all[16] = {};
  for (int i = 0; i < lanes; ++i) all[i] = p[i];
  return load_bf16(all);
}

// Vector j of the row goes to chain j mod 4; four chains hide the latency of the addition.
inline float sum_of_squares(const float* x, std::int64_t n) {
  V chain[4] = {zero(), zero(), zero(), zero()};
  for_vectors(n, [&](std::int64_t i, int lanes) {
    const V v = load_some(x + i, lanes);
    V& c = chain[i / 16 % 4];
    c = fma(v, v, c);
  });
  return reduce_add(add(add(chain[0], chain[1]), add(chain[2], chain[3])));
}

// x * (1 / sqrt(mean(x^2) + epsilon)), rounded, then times the weight.
inline void rms_norm_row(const NormRow& a) {
  const float mean = sum_of_squares(a.x, a.cols) / static_cast<float>(a.cols);
  const V inverse = div(broadcast(1.0f), sqrt(broadcast(mean + a.epsilon)));
  for_vectors(a.cols, [&](std::int64_t i, int lanes) {
    const V y = mul(mul(load_some(a.x + i, lanes), inverse), load_some(a.weight + i, lanes));
    if (a.out_bf16 != nullptr) store_some(a.out_bf16 + i, y, lanes);
    if (a.out_f32 != nullptr) store_some(a.out_f32 + i, y, lanes);
  });
}

inline void add_row(float* into, const float* x, std::int64_t n) {
  for_vectors(n, [&](std::int64_t i, int lanes) {
    store_some(into + i, add(load_some(into + i, lanes), load_some(x + i, lanes)), lanes);
  });
}

inline void widen_row(const std::uint16_t* bf16, float* out, std::int64_t n) {
  for_vectors(n, [&](std::int64_t i, int lanes) { store_some(out + i, load_some(bf16 + i, lanes), lanes); });
}

inline void narrow_row(const float* x, std::uint16_t* bf16, std::int64_t n) {
  for_vectors(n, [&](std::int64_t i, int lanes) { store_some(bf16 + i, load_some(x + i, lanes), lanes); });
}

// Both products are rounded before the sum, as in the models' own code.
inline void rotate(V& a, V& b, V c, V s) {
  const V turned = sub(mul(a, c), mul(b, s));
  b = add(mul(b, c), mul(a, s));
  a = turned;
}

inline void rope_halves_row(float* x, const float* cosines, const float* sines, std::int64_t half) {
  for_vectors(half, [&](std::int64_t i, int lanes) {
    V a = load_some(x + i, lanes);
    V b = load_some(x + half + i, lanes);
    rotate(a, b, load_some(cosines + i, lanes), load_some(sines + i, lanes));
    store_some(x + i, a, lanes);
    store_some(x + half + i, b, lanes);
  });
}

inline void rope_pairs_row(float* x, const float* cosines, const float* sines, std::int64_t half) {
  for_vectors(half, [&](std::int64_t i, int lanes) {
    const int low = lanes < 8 ? 2 * lanes : 16;  // of the 2 * lanes floats, those in the first vector
    const int high = 2 * lanes - low;
    V a;
    V b;
    deinterleave(load_some(x + 2 * i, low), high > 0 ? load_some(x + 2 * i + 16, high) : zero(), a, b);
    rotate(a, b, load_some(cosines + i, lanes), load_some(sines + i, lanes));
    V first;
    V second;
    interleave(a, b, first, second);
    store_some(x + 2 * i, first, low);
    if (high > 0) store_some(x + 2 * i + 16, second, high);
  });
}

// gelu by tanh: (1 + tanh z) / 2 = sigmoid(2 z).
inline V gelu_tanh(V g) {
  const V inner = mul(g, fma(mul(g, g), broadcast(2.0f * 0.7978845608f * 0.044715f), broadcast(2.0f * 0.7978845608f)));
  return mul(g, sigmoid(inner));
}

inline V activated(const ActivateRow& a, V g, V u) {
  const V limit = broadcast(a.limit);
  switch (a.kind) {
    case VectorActivation::swiglu:
      return mul(mul(g, sigmoid(g)), u);
    case VectorActivation::geglu_tanh:
      return mul(gelu_tanh(g), u);
    case VectorActivation::swiglu_oai:
      g = min(limit, g);
      return mul(mul(g, sigmoid(mul(broadcast(a.alpha), g))), add(clamp(u, limit), broadcast(a.beta)));
    case VectorActivation::swiglu_clamped:
      g = min(limit, g);
      return mul(mul(g, sigmoid(g)), clamp(u, limit));
    case VectorActivation::swiglu_step:
      return mul(min(limit, mul(g, sigmoid(g))), clamp(u, limit));
    case VectorActivation::relu2:
      u = max(zero(), u);
      return mul(u, u);
  }
  return zero();
}

inline void activate_row(const ActivateRow& a) {
  const bool gated = a.kind != VectorActivation::relu2;
  for_vectors(a.n, [&](std::int64_t i, int lanes) {
    const V y = activated(a, gated ? load_some(a.gate + i, lanes) : zero(), load_some(a.up + i, lanes));
    if (a.out_bf16 != nullptr) {
      store_some(a.out_bf16 + i, y, lanes);
    } else {
      store_some(a.out_f32 + i, y, lanes);
    }
  });
}

}  // namespace
}  // namespace sluice::cpu
