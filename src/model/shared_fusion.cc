#include "model/shared_fusion.h"

#include <fmt/core.h>

#include "core/error.h"
#include "model/roles.h"

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

struct Span {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Whether a span begins at a block of scales, or lies within one.
bool fits(Span s, std::int64_t block) {
  return s.first % block == 0 || s.first / block == (s.first + s.count - 1) / block;
}

// Rows and columns of a matrix with its scales.
QuantTensor part_of(const QuantTensor& whole, Span rows, Span cols) {
  QuantTensor part = whole;
  const MatrixView& m = whole.codes;
  const std::int64_t offset = dtype_bytes(m.dtype, rows.first * m.row_stride + cols.first * m.col_stride);
  part.codes.data = static_cast<const std::byte*>(m.data) + offset;
  part.codes.rows = rows.count;
  part.codes.cols = cols.count;
  const BlockScaleView& s = whole.block_scale;
  if (s.data == nullptr) return part;
  const std::int64_t scale = rows.first / s.block_rows * s.row_stride + cols.first / s.block_cols * s.col_stride;
  part.block_scale.data = static_cast<const std::byte*>(s.data) + dtype_bytes(s.dtype, scale);
  return part;
}

bool same_format(const QuantTensor& a, const QuantTensor& b) {
  const BlockScaleView& x = a.block_scale;
  const BlockScaleView& y = b.block_scale;
  if (a.codes.dtype != b.codes.dtype || (x.data == nullptr) != (y.data == nullptr)) return false;
  return x.data == nullptr || (x.dtype == y.dtype && x.block_rows == y.block_rows);
}

class Appender {
 public:
  Appender(ckpt::WeightSource& source, std::int64_t layer, const LayerSpec& spec)
      : source_(source), layer_(layer), spec_(spec), width_(spec.routing.fused_shared * spec.intermediate) {}

  void append_rows(Role role, std::vector<QuantTensor>& list) const {
    const QuantTensor whole = read(role, width_, spec_.width(), list.front());
    for (std::int64_t i = 0; i < spec_.routing.fused_shared; ++i) {
      add(whole, {i * spec_.intermediate, spec_.intermediate}, {0, spec_.width()}, list);
    }
  }
  void append_columns(Role role, std::vector<QuantTensor>& list) const {
    const QuantTensor whole = read(role, spec_.width(), width_, list.front());
    for (std::int64_t i = 0; i < spec_.routing.fused_shared; ++i) {
      add(whole, {0, spec_.width()}, {i * spec_.intermediate, spec_.intermediate}, list);
    }
  }

 private:
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

  void add(const QuantTensor& whole, Span rows, Span cols, std::vector<QuantTensor>& list) const {
    const BlockScaleView& s = whole.block_scale;
    if (s.data != nullptr && !(fits(rows, s.block_rows) && fits(cols, s.block_cols))) {
      refuse(layer_, fmt::format("a boundary between them at {} cuts a block of scales", rows.first + cols.first),
             "a multiple of the block");
    }
    list.push_back(part_of(whole, rows, cols));
  }

  ckpt::WeightSource& source_;
  std::int64_t layer_;
  const LayerSpec& spec_;
  std::int64_t width_;  // of all shared experts together
};

}  // namespace

void fuse_shared_experts(ModelConfig& config) {
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].shared) fuse(config.layers[i], static_cast<std::int64_t>(i));
  }
}

ExpertWeights read_experts(ckpt::WeightSource& source, std::int64_t layer, const LayerSpec& spec) {
  LayerSpec routed = spec;
  routed.routing.fused_shared = 0;
  ExpertWeights weights = source.experts(layer, routed);
  if (spec.routing.fused_shared == 0) return weights;
  if (!weights.input_scales.up.empty() || !weights.input_scales.down.empty()) {
    refuse(layer, "routed experts have static scales of their inputs", "scales taken from each input");
  }
  const Appender shared(source, layer, spec);
  if (is_gated(spec.activation.kind)) shared.append_rows(Role::shared_gate, weights.gate);
  shared.append_rows(Role::shared_up, weights.up);
  shared.append_columns(Role::shared_down, weights.down);
  return weights;
}

}  // namespace sluice::model
