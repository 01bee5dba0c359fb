// Which part of a layer and of a batch a rank has: for tests that run a layer over ranks, on any device.
//
// Header-only, pure functions; parts are views that live as long as the whole.
#pragma once

#include <cstdint>
#include <vector>

#include "moe/parallel.h"
#include "moe/placement.h"
#include "moe/random_layer.h"
#include "moe/weight_slices.h"
#include "moe/weights.h"

namespace sluice::testing {

inline ParallelSizes parallel_sizes(std::int32_t tp, std::int32_t ep, std::int32_t dp, MoeA2a a2a = MoeA2a::none) {
  ParallelSizes s;
  s.tp = tp;
  s.ep = ep;
  s.dp = dp;
  s.dp_attention = dp > 1;
  s.a2a = a2a;
  return resolve(s);
}

namespace detail {

template <class T>
std::vector<T> pick(const std::vector<T>& from, const std::vector<std::int32_t>& experts) {
  std::vector<T> picked;
  for (const std::int32_t e : experts) {
    if (!from.empty()) picked.push_back(from[static_cast<std::size_t>(e)]);
  }
  return picked;
}

inline BiasView no_bias(std::int64_t count) {
  static constexpr float kZero = 0.0f;
  return {&kZero, DType::f32, count, 0};
}

}  // namespace detail

// The experts of a rank's slots, cut to its share of I. The first piece of an expert has the bias of down.
inline ExpertWeights part_of_rank(const ExpertWeights& whole, const Placement& placement, const RankPlan& plan,
                                  const Share& share) {
  const SlotRange slots = placement.of_rank(plan.experts.index);
  std::vector<std::int32_t> experts;
  for (std::int32_t s = 0; s < slots.count; ++s) experts.push_back(raw(placement.expert_of(SlotId{slots.first + s})));
  ExpertWeights w = whole;
  w.gate = detail::pick(whole.gate, experts);
  w.up = detail::pick(whole.up, experts);
  w.down = detail::pick(whole.down, experts);
  w.gate_bias = detail::pick(whole.gate_bias, experts);
  w.up_bias = detail::pick(whole.up_bias, experts);
  w.down_bias = detail::pick(whole.down_bias, experts);
  if (plan.expert.whole()) return w;
  for (auto* list : {&w.gate, &w.up}) {
    for (QuantTensor& t : *list) t = rows_of(t, share);
  }
  for (QuantTensor& t : w.down) t = columns_of(t, share);
  for (auto* list : {&w.gate_bias, &w.up_bias}) {
    for (BiasView& b : *list) b = part_of(b, share);
  }
  if (plan.expert.index == 0) return w;
  for (BiasView& b : w.down_bias) b = detail::no_bias(b.count);
  return w;
}

// Tokens [first, first + count) of a batch.
inline Batch part_of_batch(const Batch& batch, std::int64_t first, std::int64_t count) {
  Batch part{count, batch.width, batch.top_k, batch.dtype, {}, {}, {}};
  const std::int64_t bytes = dtype_bytes(batch.dtype, batch.width);
  part.hidden.assign(batch.hidden.begin() + first * bytes, batch.hidden.begin() + (first + count) * bytes);
  part.ids.assign(batch.ids.begin() + first * batch.top_k, batch.ids.begin() + (first + count) * batch.top_k);
  part.weights.assign(batch.weights.begin() + first * batch.top_k,
                      batch.weights.begin() + (first + count) * batch.top_k);
  return part;
}

// The tokens of each dp group, uneven.
inline std::vector<Batch> cut_batch(const Batch& batch, std::int32_t dp) {
  std::vector<Batch> parts;
  for (std::int32_t g = 0; g < dp; ++g) {
    const Share s = share_of(batch.tokens, 1, {g, dp});
    parts.push_back(part_of_batch(batch, s.begin, s.count()));
  }
  return parts;
}

}  // namespace sluice::testing
