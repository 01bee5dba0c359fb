// Random quantised experts for tests of layouts, with memory of their own. The same seed gives the same bytes.
//
// Gate, up and down of every expert have tensor scales of their own, so that a swap of any two of them shows.
#pragma once

#include <memory>
#include <vector>

#include "moe/random_layer.h"
#include "moe/weights.h"

namespace sluice::testing {

struct RawOptions {
  std::int64_t experts = 4;
  std::int64_t hidden = 64;
  std::int64_t intermediate = 64;
  DType code = DType::e2m1;   // e2m1, e4m3 or bf16
  DType scale = DType::e4m3;  // e4m3 (NVFP4) or e8m0 (MXFP4), with e2m1
  bool gated = true;
  bool bias = false;
  bool interleaved = false;   // rows g0, u0, g1, u1, ... of one matrix, as in GPT-OSS files
  bool shared_scale = false;  // gate and up have the same tensor scale
  std::uint64_t seed = 1;

  std::int64_t block() const { return scale == DType::e4m3 ? 16 : 32; }
};

namespace detail {

using RawStorage = std::vector<std::unique_ptr<std::vector<std::uint8_t>>>;

inline std::uint8_t* add_block(RawStorage& storage, std::int64_t bytes) {
  return storage.emplace_back(std::make_unique<std::vector<std::uint8_t>>(static_cast<std::size_t>(bytes)))->data();
}

inline std::uint8_t random_code(const RawOptions& o, Random& random, std::int64_t byte) {
  const auto bits = static_cast<std::uint8_t>(random.bits());
  if (o.code == DType::e2m1) return bits;
  if (o.code == DType::e4m3) return (bits & 0x7Fu) == 0x7Fu ? 0x38 : bits;         // no NaN
  return byte % 2 == 0 ? bits : static_cast<std::uint8_t>(0x3C | (bits & 0x81u));  // bf16 between 2^-7 and 2^-4 or so
}

// E4M3 scales between 2^-3 and 2; E8M0 bytes 125 to 129, as in SGLang's test.
inline std::uint8_t random_scale(const RawOptions& o, Random& random) {
  const std::int32_t n = random.below(o.scale == DType::e4m3 ? 32 : 5);
  return static_cast<std::uint8_t>((o.scale == DType::e4m3 ? 0x20 : 125) + n);
}

// `step` matrices share their rows: row r of matrix `index` is row r * step + index of the block.
inline void random_tensors(RawStorage& storage, const RawOptions& o, std::int64_t rows, std::int64_t cols,
                           std::uint64_t seed, const std::vector<QuantTensor*>& share) {
  const auto step = static_cast<std::int64_t>(share.size());
  Random random(seed);
  const std::int64_t row_bytes = dtype_bytes(o.code, cols), scales = cols / o.block();
  std::uint8_t* codes = add_block(storage, step * rows * row_bytes);
  for (std::int64_t i = 0; i < step * rows * row_bytes; ++i) codes[i] = random_code(o, random, i);
  std::uint8_t* scale = o.code == DType::e2m1 ? add_block(storage, step * rows * scales) : nullptr;
  for (std::int64_t i = 0; scale != nullptr && i < step * rows * scales; ++i) scale[i] = random_scale(o, random);
  for (std::int64_t i = 0; i < step; ++i) {
    share[i]->codes = {codes + i * row_bytes, o.code, rows, cols, step * cols, 1};
    if (scale != nullptr) share[i]->block_scale = {scale + i * scales, o.scale, 1, o.block(), step * scales, 1};
    if (o.code != DType::bf16 && o.scale != DType::e8m0) share[i]->tensor_scale = 0.01f + 0.03f * random.unit();
  }
}

inline BiasView bf16_bias(RawStorage& storage, std::int64_t count, std::uint64_t seed) {
  std::uint8_t* data = add_block(storage, 2 * count);
  Random random(seed);
  for (std::int64_t i = 0; i < count; ++i) reinterpret_cast<Bf16*>(data)[i] = to_bf16(random.symmetric(1.0f));
  return {data, DType::bf16, count, 1};
}

}  // namespace detail

inline ExpertWeights quant_experts(const RawOptions& o) {
  auto storage = std::make_shared<detail::RawStorage>();
  ExpertWeights w;
  for (std::int64_t e = 0; e < o.experts; ++e) {
    const std::uint64_t seed = o.seed * 1000003u + static_cast<std::uint64_t>(e) * 8u;
    QuantTensor gate, up, down;
    if (o.interleaved) {
      detail::random_tensors(*storage, o, o.intermediate, o.hidden, seed, {&gate, &up});
    } else {
      if (o.gated) detail::random_tensors(*storage, o, o.intermediate, o.hidden, seed, {&gate});
      detail::random_tensors(*storage, o, o.intermediate, o.hidden, seed + 1, {&up});
    }
    if (o.shared_scale) gate.tensor_scale = up.tensor_scale;
    detail::random_tensors(*storage, o, o.hidden, o.intermediate, seed + 2, {&down});
    if (o.gated) w.gate.push_back(gate);
    w.up.push_back(up);
    w.down.push_back(down);
    w.input_scales.gate.push_back(0.004f + 0.001f * static_cast<float>(e % 3));
    w.input_scales.up.push_back(0.004f + 0.001f * static_cast<float>(e % 3));
    w.input_scales.down.push_back(0.02f + 0.01f * static_cast<float>(e % 5));
    if (!o.bias) continue;
    if (o.gated) w.gate_bias.push_back(detail::bf16_bias(*storage, o.intermediate, seed + 3));
    w.up_bias.push_back(detail::bf16_bias(*storage, o.intermediate, seed + 4));
    w.down_bias.push_back(detail::bf16_bias(*storage, o.hidden, seed + 5));
  }
  w.keep_alive = storage;
  return w;
}

// Experts first .. first + count - 1, which share the memory; the activation scales stay those of all experts.
inline ExpertWeights slice_experts(const ExpertWeights& all, std::int64_t first, std::int64_t count) {
  ExpertWeights w;
  const auto cut = [&](const auto& list) {
    auto copy = list;
    copy.clear();
    if (!list.empty()) copy.assign(list.begin() + first, list.begin() + first + count);
    return copy;
  };
  w.gate = cut(all.gate), w.up = cut(all.up), w.down = cut(all.down);
  w.gate_bias = cut(all.gate_bias), w.up_bias = cut(all.up_bias), w.down_bias = cut(all.down_bias);
  w.input_scales = all.input_scales;
  w.keep_alive = all.keep_alive;
  return w;
}

inline LayerSpec layer_of(const RawOptions& o, std::int32_t top_k) {
  LayerSpec layer;
  layer.hidden = o.hidden;
  layer.intermediate = o.intermediate;
  layer.has_bias = o.bias;
  layer.routing.experts = static_cast<std::int32_t>(o.experts);
  layer.routing.top_k = top_k;
  if (!o.gated) layer.activation.kind = ActivationKind::relu2;
  if (o.gated && o.bias) layer.activation.kind = ActivationKind::swiglu_oai;
  return layer;
}

}  // namespace sluice::testing
