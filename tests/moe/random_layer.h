// Random MoE layers and batches for tests of runners. Deterministic: the same arguments give the same numbers on every
// machine, whatever the memory layout of the weights.
//
// Gate and up have different magnitudes, and so has every expert, so that swapping any two of them changes the output.
// Pre-activations reach beyond +-7, so that clamps act. Header-only; nothing is shared between objects.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"
#include "moe/runner.h"
#include "numerics/bf16.h"
#include "numerics/fp16.h"

namespace sluice::testing {

// splitmix64: independent streams from neighbouring seeds.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  float unit() { return static_cast<float>(bits() >> 40) * 0x1p-24f; }                  // [0, 1)
  float symmetric(float sigma) { return (2.0f * unit() - 1.0f) * sigma * 1.7320508f; }  // uniform, deviation sigma
  std::int32_t below(std::int32_t n) { return static_cast<std::int32_t>(bits() % static_cast<std::uint64_t>(n)); }

 private:
  std::uint64_t state_;
};

// How gate, up and down lie in memory; the values are the same in all of them.
enum class WeightLayout : std::uint8_t {
  dense,        // each expert's matrices apart, [rows, cols]
  padded,       // rows further apart than they are long
  transposed,   // [cols, rows]
  interleaved,  // gate and up rows alternate in one [2I, H]
  gpt_oss,      // [H, 2I] with alternating gate and up columns; down [I, H]
};

struct LayerOptions {
  LayerSpec layer;  // with routing.experts and routing.top_k; bias follows layer.has_bias
  DType dtype = DType::bf16;
  WeightLayout layout = WeightLayout::dense;
  std::uint64_t seed = 1;
};

enum class RoutePattern : std::uint8_t {
  uniform,     // k distinct experts, all equally likely
  zipf,        // k distinct experts, expert e with probability ~ 1 / (e + 1)
  hot_one,     // slot 0 of every token is the last expert, the others uniform
  all_to_one,  // every slot of every token is expert 0: duplicates in each token
};

// Memory of T tokens: hidden rows, ids and weights of the routing.
struct Batch {
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  std::int32_t top_k = 0;
  DType dtype = DType::bf16;
  std::vector<std::byte> hidden;  // [T, width]
  std::vector<SlotId> ids;        // [T, k]
  std::vector<float> weights;     // [T, k] positive, sum 1 a token

  ConstTensorView view() const { return dense_view(hidden.data(), dtype, tokens, width); }
};

namespace detail {

inline void store(std::byte* base, DType dtype, std::int64_t index, float v) {
  if (dtype == DType::f32) reinterpret_cast<float*>(base)[index] = v;
  if (dtype == DType::bf16) reinterpret_cast<Bf16*>(base)[index] = to_bf16(v);
  if (dtype == DType::f16) reinterpret_cast<Fp16*>(base)[index] = to_fp16(v);
}

struct Storage {
  std::vector<std::vector<std::byte>> blocks;
  std::byte* add(DType dtype, std::int64_t elements) {
    return blocks.emplace_back(static_cast<std::size_t>(dtype_bytes(dtype, elements))).data();
  }
};

inline void fill(const MatrixView& view, std::uint64_t seed, float sigma) {
  Random random(seed);
  auto* base = static_cast<std::byte*>(const_cast<void*>(view.data));
  for (std::int64_t n = 0; n < view.rows; ++n) {
    for (std::int64_t c = 0; c < view.cols; ++c) {
      store(base, view.dtype, n * view.row_stride + c * view.col_stride, random.symmetric(sigma));
    }
  }
}

inline MatrixView place(Storage& storage, DType dtype, WeightLayout layout, std::int64_t rows, std::int64_t cols) {
  if (layout == WeightLayout::transposed || layout == WeightLayout::gpt_oss) {
    return {storage.add(dtype, rows * cols), dtype, rows, cols, 1, rows};
  }
  const std::int64_t stride = layout == WeightLayout::padded ? cols + 24 : cols;
  return {storage.add(dtype, rows * stride), dtype, rows, cols, stride, 1};
}

// Gate and up in one block where the layout says so.
inline void place_pair(Storage& storage, const LayerOptions& o, MatrixView& gate, MatrixView& up) {
  const std::int64_t rows = o.layer.intermediate, cols = o.layer.width();
  if (o.layout != WeightLayout::interleaved && o.layout != WeightLayout::gpt_oss) {
    gate = place(storage, o.dtype, o.layout, rows, cols);
    up = place(storage, o.dtype, o.layout, rows, cols);
    return;
  }
  std::byte* block = storage.add(o.dtype, 2 * rows * cols);
  const bool columns = o.layout == WeightLayout::gpt_oss;
  gate = {block, o.dtype, rows, cols, columns ? 2 : 2 * cols, columns ? 2 * rows : 1};
  up = gate;
  up.data = block + dtype_bytes(o.dtype, columns ? 1 : cols);
}

inline BiasView random_bias(Storage& storage, DType dtype, std::int64_t count, std::uint64_t seed, float sigma) {
  std::byte* data = storage.add(dtype, count);
  Random random(seed);
  for (std::int64_t i = 0; i < count; ++i) store(data, dtype, i, random.symmetric(sigma));
  return {data, dtype, count, 1};
}

}  // namespace detail

// Weights with their own memory, held by keep_alive.
inline ExpertWeights random_weights(const LayerOptions& o) {
  auto storage = std::make_shared<detail::Storage>();
  const std::int64_t width = o.layer.width(), intermediate = o.layer.intermediate;
  const bool gated = is_gated(o.layer.activation.kind);
  ExpertWeights w;
  for (std::int32_t e = 0; e < o.layer.routing.total_experts(); ++e) {
    const std::uint64_t seed = o.seed * 1000003u + static_cast<std::uint64_t>(e) * 8u;
    const float expert_scale = 0.75f + 0.25f * static_cast<float>(e % 4);
    const float in = expert_scale / std::sqrt(static_cast<float>(width));
    const float out = expert_scale / std::sqrt(static_cast<float>(intermediate));
    MatrixView gate, up;
    detail::place_pair(*storage, o, gate, up);
    const MatrixView down = detail::place(*storage, o.dtype, o.layout, width, intermediate);
    detail::fill(gate, seed, 3.0f * in);
    detail::fill(up, seed + 1, 5.0f * in);
    detail::fill(down, seed + 2, out);
    if (gated) w.gate.push_back({gate, {}, 1.0f});
    w.up.push_back({up, {}, 1.0f});
    w.down.push_back({down, {}, 1.0f});
    if (!o.layer.has_bias) continue;
    if (gated) w.gate_bias.push_back(detail::random_bias(*storage, o.dtype, intermediate, seed + 3, 2.0f));
    w.up_bias.push_back(detail::random_bias(*storage, o.dtype, intermediate, seed + 4, 1.0f));
    w.down_bias.push_back(detail::random_bias(*storage, o.dtype, width, seed + 5, 0.5f));
  }
  w.keep_alive = storage;
  return w;
}

namespace detail {

// k distinct experts of a token, most likely first ones for zipf.
inline void choose(Random& random, RoutePattern pattern, std::int32_t experts, std::int32_t k, SlotId* ids) {
  std::vector<float> keys(static_cast<std::size_t>(experts));
  for (std::int32_t e = 0; e < experts; ++e) {
    const float weight = pattern == RoutePattern::zipf ? 1.0f / static_cast<float>(e + 1) : 1.0f;
    keys[e] = -std::log(1.0f - random.unit()) / weight;  // exponential race: sampling without replacement
  }
  if (pattern == RoutePattern::hot_one) keys[experts - 1] = -1.0f;
  std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return keys[a] != keys[b] ? keys[a] < keys[b] : a < b; });
  for (std::int32_t s = 0; s < k; ++s) ids[s] = SlotId{pattern == RoutePattern::all_to_one ? 0 : order[s]};
}

}  // namespace detail

// T tokens with hidden rows of deviation 1 (each row with a scale of its own) in `dtype`. Row t depends on (seed, t)
// only, so that a smaller batch is a prefix of a larger one.
inline Batch random_batch(const LayerSpec& layer, std::int64_t tokens, DType dtype, RoutePattern pattern,
                          std::uint64_t seed) {
  Batch b{tokens, layer.width(), layer.routing.slots(), dtype, {}, {}, {}};
  b.hidden.resize(static_cast<std::size_t>(dtype_bytes(dtype, tokens * b.width)));
  b.ids.resize(static_cast<std::size_t>(tokens * b.top_k));
  b.weights.resize(b.ids.size());
  for (std::int64_t t = 0; t < tokens; ++t) {
    Random random(seed * 7919u + static_cast<std::uint64_t>(t) * 104729u);
    const float sigma = 0.5f + random.unit();
    for (std::int64_t c = 0; c < b.width; ++c) {
      detail::store(b.hidden.data(), dtype, t * b.width + c, random.symmetric(sigma));
    }
    detail::choose(random, pattern, layer.routing.total_experts(), b.top_k, b.ids.data() + t * b.top_k);
    float sum = 0.0f;
    float* weights = b.weights.data() + t * b.top_k;
    for (std::int32_t s = 0; s < b.top_k; ++s) sum += weights[s] = 0.1f + random.unit();
    for (std::int32_t s = 0; s < b.top_k; ++s) weights[s] /= sum;
  }
  return b;
}

}  // namespace sluice::testing
