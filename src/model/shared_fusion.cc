#include "model/shared_fusion.h"

#include <fmt/core.h>

#include "core/error.h"
#include "model/roles.h"
#include "moe/weight_slices.h"

namespace sluice::model {
namespace {

[[noreturn]] void refuse(std::int64_t layer, std::string_view what, std::string_view expected) {
  fail(ErrorCode::unsupported, fmt::format("layer {}: shared experts among the routed ones: {}", layer, what),
       std::string(expected), "leave the shared experts apart from the routed ones");
}

bool same(const ActivationSpec& a, const ActivationSpec& b) {
  return a.kind == b.kind && a.alpha == b.alpha && a.beta == b.beta && a.limit == b.limit &&
         a.linear_beta == b.linear_beta;
}

void fuse(BlockSpec& block, std::int64_t layer) {
  LayerSpec& routed = std::get<LayerSpec>(block.ffn);
  const SharedExpertSpec& shared = *block.shared;
  if (shared.ffn.intermediate % routed.intermediate != 0) {
    refuse(layer, fmt::format("intermediate size {}", shared.ffn.intermediate),
           fmt::format("a multiple of {}", routed.intermediate));
  }
  if (!same(shared.ffn.activation, routed.activation)) {
    refuse(layer, "another activation or clamp", "that of the routed experts");
  }
  if (shared.output_gate) refuse(layer, "their output has a gate", "weight 1");
  if (routed.has_bias) refuse(layer, "routed experts have biases", "none");
  routed.routing.fused_shared = static_cast<std::int32_t>(shared.ffn.intermediate / routed.intermediate);
  block.shared.reset();
}

bool same_format(const QuantTensor& a, const QuantTensor& b) {
  const BlockScaleView& x = a.block_scale;
  const BlockScaleView& y = b.block_scale;
  if (a.codes.dtype != b.codes.dtype || (x.data == nullptr) != (y.data == nullptr)) return false;
  return x.data == nullptr || (x.dtype == y.dtype && x.block_rows == y.block_rows);
}

// Reads shared experts as further routed ones: the rank's piece of those that it holds.
class Appender {
 public:
  Appender(ckpt::WeightSource& source, std::int64_t layer, const LayerSpec& spec, const Share& inner)
      : source_(source),
        layer_(layer),
        spec_(spec),
        inner_(inner),
        width_(spec.routing.fused_shared * spec.intermediate) {}

  // `which` counts from 0.
  void append_rows(Role role, const std::vector<std::int64_t>& which, std::vector<QuantTensor>& list) const {
    const QuantTensor whole = read(role, width_, spec_.width(), list.front());
    for (const std::int64_t i : which) list.push_back(guarded([&] { return rows_of(whole, part(i)); }));
  }
  void append_columns(Role role, const std::vector<std::int64_t>& which, std::vector<QuantTensor>& list) const {
    const QuantTensor whole = read(role, spec_.width(), width_, list.front());
    for (const std::int64_t i : which) list.push_back(guarded([&] { return columns_of(whole, part(i)); }));
  }

 private:
  Share part(std::int64_t i) const {
    return {i * spec_.intermediate + inner_.begin, i * spec_.intermediate + inner_.end};
  }

  QuantTensor read(Role role, std::int64_t rows, std::int64_t cols, const QuantTensor& routed) const {
    if (source_.tensor_recipe(role_name(role), layer_) != source_.expert_recipe(layer_)) {
      refuse(layer_, fmt::format("{} has another recipe", role_name(role)), "that of the routed experts");
    }
    QuantTensor whole = source_.tensor(role_name(role), layer_, rows, cols);
    if (!same_format(whole, routed)) {
      refuse(layer_, fmt::format("{} is {}", role_name(role), dtype_name(whole.codes.dtype)),
             fmt::format("{} with scales like those of the routed experts", dtype_name(routed.codes.dtype)));
    }
    return whole;
  }

  template <class Cut>
  QuantTensor guarded(Cut cut) const {
    try {
      return cut();
    } catch (const Error& error) {
      refuse(layer_, error.what(), "a multiple of the block");
    }
  }

  ckpt::WeightSource& source_;
  std::int64_t layer_;
  const LayerSpec& spec_;
  Share inner_;
  std::int64_t width_;  // of all shared experts together
};

// The routed experts of a slice, and which of the shared ones behind them it holds.
struct Held {
  ckpt::ExpertSlice routed;
  std::vector<std::int64_t> shared;
};

Held split(const ckpt::ExpertSlice& slice, std::int64_t layer, const LayerSpec& spec) {
  Held held;
  held.routed.inner = slice.inner;
  if (slice.experts.empty()) {
    for (std::int64_t i = 0; i < spec.routing.fused_shared; ++i) held.shared.push_back(i);
    return held;
  }
  for (const LogicalId e : slice.experts) {
    if (raw(e) >= spec.routing.experts) {
      held.shared.push_back(raw(e) - spec.routing.experts);
    } else if (held.shared.empty()) {
      held.routed.experts.push_back(e);
    } else {
      refuse(layer, "a slot of a routed expert comes after one of a shared one", "shared experts last");
    }
  }
  if (held.routed.experts.empty()) refuse(layer, "a rank holds shared ones only", "routed experts on every rank");
  return held;
}

}  // namespace

void fuse_shared_experts(ModelConfig& config) {
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].shared) fuse(config.layers[i], static_cast<std::int64_t>(i));
  }
}

ExpertWeights read_experts(ckpt::WeightSource& source, std::int64_t layer, const LayerSpec& spec,
                           const ckpt::ExpertSlice& slice) {
  if (spec.routing.fused_shared == 0) return source.experts_to_check(layer, spec, slice);
  LayerSpec routed = spec;
  routed.routing.fused_shared = 0;
  const Held held = split(slice, layer, spec);
  ExpertWeights weights = source.experts(layer, routed, held.routed);
  if (!weights.input_scales.up.empty() || !weights.input_scales.down.empty()) {
    refuse(layer, "routed experts have static scales of their inputs", "scales taken from each input");
  }
  const Appender shared(source, layer, spec, slice.inner_of(spec.intermediate));
  if (is_gated(spec.activation.kind)) shared.append_rows(Role::shared_gate, held.shared, weights.gate);
  shared.append_rows(Role::shared_up, held.shared, weights.up);
  shared.append_columns(Role::shared_down, held.shared, weights.down);
  return weights;
}

}  // namespace sluice::model
