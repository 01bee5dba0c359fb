// Checkpoints of one MoE layer in every arrangement of its experts, whose values tell where they belong.
//
// Used by scheme_test.cc. Values are computed from (expert, row, column), so expectations come from no reader.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/name_map.h"
#include "checkpoint/safetensors_writer.h"
#include "moe/spec.h"
#include "moe/weights.h"
#include "numerics/bf16.h"
#include "test_util.h"

namespace sluice::ckpt {

using Files = ExpertNames::Files;
using GateUp = ExpertNames::GateUp;

// Every weight is a number that tells where it belongs, exact in bf16 up to 256: so E * 2I * H <= 256.
struct Sizes {
  std::int64_t experts = 3, inner = 4, width = 4;
};
inline float gate_value(const Sizes& s, std::int64_t e, std::int64_t n, std::int64_t h) {
  return static_cast<float>((e * s.inner + n) * s.width + h);
}
inline float up_value(const Sizes& s, std::int64_t e, std::int64_t n, std::int64_t h) {
  return -gate_value(s, e, n, h) - 0.5f;
}
inline float down_value(const Sizes& s, std::int64_t e, std::int64_t h, std::int64_t n) {
  return 64.0f + static_cast<float>((e * s.width + h) * s.inner + n);
}
inline float gate_bias_value(std::int64_t e, std::int64_t n) { return static_cast<float>(10 * e + n); }
inline float up_bias_value(std::int64_t e, std::int64_t n) { return -gate_bias_value(e, n) - 1.0f; }
inline float down_bias_value(std::int64_t e, std::int64_t h) { return gate_bias_value(e, h) + 0.25f; }

inline LayerSpec layer(const Sizes& s, bool bias = false) {
  LayerSpec spec;
  spec.hidden = s.width;
  spec.intermediate = s.inner;
  spec.routing.experts = static_cast<std::int32_t>(s.experts);
  spec.routing.top_k = 1;
  spec.has_bias = bias;
  return spec;
}

using Element = std::function<float(std::int64_t e, std::int64_t n, std::int64_t k)>;

// A one-layer checkpoint under construction. Data is f32 unless `type` says bf16.
class Builder {
 public:
  explicit Builder(DType type = DType::f32) : type_(type) {}

  void add(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
    std::string bytes;
    for (const float v : values) {
      const Bf16 half = to_bf16(v);
      bytes.append(type_ == DType::f32 ? reinterpret_cast<const char*>(&v) : reinterpret_cast<const char*>(&half),
                   type_ == DType::f32 ? 4 : 2);
    }
    data_.push_back(std::make_unique<std::string>(std::move(bytes)));
    writer_.add(name, type_, std::move(shape), std::as_bytes(std::span(*data_.back())));
  }

  // A projection of `rows` outputs and `cols` inputs for every expert, stored as `names` says.
  void add_projection(const ExpertNames& names, const std::string& pattern, std::int64_t experts, std::int64_t rows,
                      std::int64_t cols, const Element& element) {
    std::vector<std::int64_t> shape = names.transposed ? std::vector{cols, rows} : std::vector{rows, cols};
    std::vector<float> all;
    for (std::int64_t e = 0; e < experts; ++e) {
      std::vector<float> one;
      for (std::int64_t i = 0; i < shape[0]; ++i) {
        for (std::int64_t j = 0; j < shape[1]; ++j)
          one.push_back(names.transposed ? element(e, j, i) : element(e, i, j));
      }
      if (names.files == Files::per_expert) add(expand(pattern, 0, e), shape, one);
      all.insert(all.end(), one.begin(), one.end());
    }
    if (names.files != Files::stacked) return;
    shape.insert(shape.begin(), experts);
    add(expand(pattern, 0), shape, all);
  }

  void add_bias(const ExpertNames& names, const std::string& pattern, std::int64_t experts, std::int64_t count,
                const std::function<float(std::int64_t e, std::int64_t n)>& element) {
    std::vector<float> all;
    for (std::int64_t e = 0; e < experts; ++e) {
      std::vector<float> one;
      for (std::int64_t n = 0; n < count; ++n) one.push_back(element(e, n));
      if (names.files == Files::per_expert) add(expand(pattern, 0, e), {count}, one);
      all.insert(all.end(), one.begin(), one.end());
    }
    if (names.files == Files::stacked) add(expand(pattern, 0), {experts, count}, all);
  }

  SafetensorsWriter& writer() { return writer_; }

  std::unique_ptr<Checkpoint> open(const TempFolder& folder, std::string_view config = "{}") const {
    folder.write("config.json", config);
    writer_.write(folder.file("model.safetensors"));
    return Checkpoint::open(folder.path());
  }

 private:
  DType type_;
  SafetensorsWriter writer_;
  std::vector<std::unique_ptr<std::string>> data_;
};

inline ExpertNames arrangement(Files files, GateUp order, bool transposed) {
  const std::string stem = files == Files::per_expert ? "layers.{L}.experts.{E}." : "layers.{L}.experts.";
  ExpertNames n;
  n.files = files;
  n.gate_up_order = order;
  n.transposed = transposed;
  if (order == GateUp::separate) {
    n.gate = stem + "gate.weight";
    n.up = stem + "up.weight";
    n.gate_bias = stem + "gate.bias";
    n.up_bias = stem + "up.bias";
  } else {
    n.gate_up = stem + "gate_up.weight";
    n.gate_up_bias = stem + "gate_up.bias";
  }
  n.down = stem + "down.weight";
  n.down_bias = stem + "down.bias";
  return n;
}

// Which projection and row of it output `n` of the fused tensor is.
inline std::pair<bool, std::int64_t> fused_row(GateUp order, std::int64_t inner, std::int64_t n) {
  if (order == GateUp::interleaved) return {n % 2 == 1, n / 2};
  const bool second = n >= inner;
  return {order == GateUp::gate_then_up ? second : !second, n % inner};
}

inline void add_experts(Builder& b, const ExpertNames& names, const Sizes& s) {
  const auto gate = [&](std::int64_t e, std::int64_t n, std::int64_t h) { return gate_value(s, e, n, h); };
  const auto up = [&](std::int64_t e, std::int64_t n, std::int64_t h) { return up_value(s, e, n, h); };
  const auto down = [&](std::int64_t e, std::int64_t h, std::int64_t n) { return down_value(s, e, h, n); };
  const GateUp order = names.gate_up_order;
  if (order == GateUp::separate) {
    b.add_projection(names, names.gate, s.experts, s.inner, s.width, gate);
    b.add_projection(names, names.up, s.experts, s.inner, s.width, up);
    b.add_bias(names, names.gate_bias, s.experts, s.inner, gate_bias_value);
    b.add_bias(names, names.up_bias, s.experts, s.inner, up_bias_value);
  } else {
    b.add_projection(names, names.gate_up, s.experts, 2 * s.inner, s.width,
                     [&](std::int64_t e, std::int64_t n, std::int64_t h) {
                       const auto [is_up, row] = fused_row(order, s.inner, n);
                       return is_up ? up(e, row, h) : gate(e, row, h);
                     });
    b.add_bias(names, names.gate_up_bias, s.experts, 2 * s.inner, [&](std::int64_t e, std::int64_t n) {
      const auto [is_up, row] = fused_row(order, s.inner, n);
      return is_up ? up_bias_value(e, row) : gate_bias_value(e, row);
    });
  }
  b.add_projection(names, names.down, s.experts, s.width, s.inner, down);
  b.add_bias(names, names.down_bias, s.experts, s.width, down_bias_value);
}

inline NameMap map_of(std::vector<ExpertNames> experts) {
  return {{{"norm", "layers.{L}.norm"}, {"out", "out.weight"}}, std::move(experts), {}};
}

inline void expect_matrix(const QuantTensor& w, std::int64_t rows, std::int64_t cols,
                          const std::function<float(std::int64_t, std::int64_t)>& want) {
  ASSERT_EQ(w.codes.rows, rows);
  ASSERT_EQ(w.codes.cols, cols);
  EXPECT_EQ(w.block_scale.data, nullptr);
  EXPECT_EQ(w.tensor_scale, 1.0f);
  std::vector<float> row(static_cast<std::size_t>(cols));
  for (std::int64_t n = 0; n < rows; ++n) {
    decode_row(w, n, row.data());
    for (std::int64_t k = 0; k < cols; ++k) ASSERT_EQ(row[static_cast<std::size_t>(k)], want(n, k)) << n << ", " << k;
  }
}

inline void expect_experts(const ExpertWeights& w, const Sizes& s) {
  ASSERT_EQ(w.count(), s.experts);
  ASSERT_EQ(w.gate.size(), w.up.size());
  ASSERT_EQ(w.down.size(), w.up.size());
  for (std::int64_t e = 0; e < s.experts; ++e) {
    const auto i = static_cast<std::size_t>(e);
    expect_matrix(w.gate[i], s.inner, s.width, [&](auto n, auto h) { return gate_value(s, e, n, h); });
    expect_matrix(w.up[i], s.inner, s.width, [&](auto n, auto h) { return up_value(s, e, n, h); });
    expect_matrix(w.down[i], s.width, s.inner, [&](auto h, auto n) { return down_value(s, e, h, n); });
  }
}

inline void expect_biases(const ExpertWeights& w, const Sizes& s) {
  ASSERT_EQ(w.gate_bias.size(), w.up.size());
  ASSERT_EQ(w.up_bias.size(), w.up.size());
  ASSERT_EQ(w.down_bias.size(), w.up.size());
  for (std::int64_t e = 0; e < s.experts; ++e) {
    const auto i = static_cast<std::size_t>(e);
    ASSERT_EQ(w.gate_bias[i].count, s.inner);
    ASSERT_EQ(w.down_bias[i].count, s.width);
    for (std::int64_t n = 0; n < s.inner; ++n) {
      EXPECT_EQ(decode_bias(w.gate_bias[i], n), gate_bias_value(e, n));
      EXPECT_EQ(decode_bias(w.up_bias[i], n), up_bias_value(e, n));
    }
    for (std::int64_t h = 0; h < s.width; ++h) EXPECT_EQ(decode_bias(w.down_bias[i], h), down_bias_value(e, h));
  }
}

}  // namespace sluice::ckpt
