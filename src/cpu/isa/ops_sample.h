// Loops over one row of logits. Included after ops_rows.h; internal linkage.
#pragma once

#include <cstdint>

#include "cpu/ops_kernels.h"

namespace sluice::cpu {
namespace {

inline std::uint32_t lane_bits(int lanes) { return lanes == 16 ? 0xFFFFu : (1u << lanes) - 1u; }

inline float max_or_nan_row(const float* x, std::int64_t n) {
  const V lowest = broadcast(-__builtin_inff());
  V top = lowest;
  std::uint32_t nan = 0;
  for_vectors(n, [&](std::int64_t i, int lanes) {
    const V v = select(lane_bits(lanes), load_some(x + i, lanes), lowest);
    nan |= unordered(v);
    top = max(v, top);
  });
  return nan != 0 ? __builtin_nanf("") : reduce_max(top);
}

inline std::int64_t find_value(const float* x, std::int64_t n, float value) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    const std::uint32_t hits = equal(load_some(x + i, lanes), broadcast(value)) & lane_bits(lanes);
    if (hits != 0) return i + __builtin_ctz(hits);
  }
  return n;
}

inline V weight_of(const WeightRow& a, V x) {
  const V weight = exp(mul(sub(x, broadcast(a.max)), broadcast(a.inverse_temperature)));
  return zero_where_less(zero_where_less(weight, x, broadcast(a.cut)), weight, broadcast(a.min_weight));
}

inline float weight_sum_row(const WeightRow& a) {
  V sum = zero();
  for_vectors(a.n, [&](std::int64_t i, int lanes) {
    const V weight = weight_of(a, load_some(a.x + i, lanes));
    sum = add(sum, lanes == 16 ? weight : select(lane_bits(lanes), weight, zero()));
  });
  return reduce_add(sum);
}

inline void weights_row(const WeightRow& a, float* out) {
  for_vectors(a.n,
              [&](std::int64_t i, int lanes) { store_some(out + i, weight_of(a, load_some(a.x + i, lanes)), lanes); });
}

inline std::int64_t gather_row(const WeightRow& a, Candidate* out) {
  std::int64_t count = 0;
  for_vectors(a.n, [&](std::int64_t i, int lanes) {
    const V x = load_some(a.x + i, lanes);
    std::uint32_t hits = at_least(x, broadcast(a.cut)) & lane_bits(lanes);
    if (hits == 0) return;
    float weights[16];
    store(weights, weight_of(a, x));
    for (; hits != 0; hits &= hits - 1) {
      const int lane = __builtin_ctz(hits);
      out[count++] = {a.x[i + lane], weights[lane], static_cast<std::int32_t>(i + lane)};
    }
  });
  return count;
}

}  // namespace
}  // namespace sluice::cpu
