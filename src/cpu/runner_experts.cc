#include "cpu/runner_experts.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "core/error.h"
#include "cpu/pieces.h"
#include "moe/input_scales.h"
#include "moe/runner_checks.h"

namespace sluice::cpu {
namespace {

Activation kernel_activation(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::swiglu:
      return Activation::swiglu;
    case ActivationKind::geglu_erf:
      return Activation::geglu_erf;
    case ActivationKind::geglu_tanh:
      return Activation::geglu_tanh;
    case ActivationKind::swiglu_oai:
      return Activation::swiglu_oai;
    case ActivationKind::swiglu_clamped:
      return Activation::swiglu_clamped;
    case ActivationKind::swiglu_step:
      return Activation::swiglu_step;
    case ActivationKind::situ:
      return Activation::situ;
    case ActivationKind::relu2:
      return Activation::relu2;
  }
  fail(ErrorCode::unsupported, "the CPU kernels don't have this activation");
}

bool near_scales(const std::vector<QuantTensor>& weights, ThreadPool& pool) {
  std::atomic<bool> near{true};
  pool.parallel_for(static_cast<std::int64_t>(weights.size()), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t e = begin; e < end; ++e) {
      if (near && !scales_are_near(weights[e])) near = false;
    }
  });
  return near;
}

void release_codes(const ExpertWeights& weights, const QuantTensor& weight) {
  const MatrixView& c = weight.codes;
  const std::int64_t elements = (c.rows - 1) * c.row_stride + (c.cols - 1) * c.col_stride + 1;
  weights.release(c.data, static_cast<std::size_t>(dtype_bytes(c.dtype, elements)));
}

// Gives up the pages of an expert as soon as its last pair is packed: a layer may be larger than what may be mapped.
// Counting waits for all lines that went past the cache, so that it is done once a run of pairs.
class ExpertRelease {
 public:
  ExpertRelease(const ExpertWeights& weights, std::int64_t pairs)
      : weights_(weights), left_(static_cast<std::size_t>(weights.count())) {
    for (std::atomic<std::int64_t>& left : left_) left = pairs;
  }
  void packed(std::int64_t e, std::int64_t pairs) {
    if (left_[e].fetch_sub(pairs, std::memory_order_acq_rel) != pairs || !weights_.release) return;
    if (!weights_.gate.empty()) release_codes(weights_, weights_.gate[e]);
    release_codes(weights_, weights_.up[e]);
    release_codes(weights_, weights_.down[e]);
  }

 private:
  const ExpertWeights& weights_;
  std::vector<std::atomic<std::int64_t>> left_;
};

}  // namespace

ActivationNumbers activation_numbers(const ActivationSpec& spec) {
  return {kernel_activation(spec.kind), spec.alpha, spec.beta, spec.limit, spec.linear_beta};
}

CpuExperts::CpuExperts(const Problem& problem, std::int64_t experts_)
    : layer(problem.layer),
      recipe(problem.recipe),
      upstream_gate_alpha(problem.upstream_gate_alpha),
      numbers(activation_numbers(problem.layer.activation)),
      experts(experts_) {
  const Format format = stored_format(recipe);
  const bool scaled = recipe == Recipe::fp8_block;
  gemm1 = {ceil_div(layer.intermediate, gemm1_columns()), layer.width(), format, scaled};
  gemm2 = {ceil_div(layer.width(), kPairRows), layer.intermediate, format, scaled};
  const auto bytes = [](std::int64_t count) { return host_buffer(static_cast<std::size_t>(count)); };
  const auto floats = [&](std::int64_t count) { return bytes(count * std::int64_t{sizeof(float)}); };
  in_ = bytes(experts * gemm1.bytes());
  out_ = bytes(experts * gemm2.bytes());
  if (layer.has_bias) biases_ = floats(experts * pairs() * kPairRows);
  if (gemm1.quantized() && !scaled) output_scales_ = floats(experts * pairs() * kPairRows);
  if (scaled) block_scales_ = floats(experts * block_scales_of_expert());
}

std::int64_t CpuExperts::resident_bytes() const {
  return static_cast<std::int64_t>(in_.bytes() + out_.bytes() + biases_.bytes() + output_scales_.bytes() +
                                   block_scales_.bytes());
}

PairData CpuExperts::gemm1_data(std::int64_t e, std::int64_t pair) const {
  return {in_.as<std::byte>() + e * gemm1.bytes() + pair * gemm1.pair_bytes(),
          block_scales(e, 2 * pair * gemm1.scale_groups()), output_scales(e, pair), nullptr};
}

PairData CpuExperts::gemm2_data(std::int64_t e, std::int64_t pair) const {
  const std::int64_t before = 2 * gemm1.pairs * gemm1.scale_groups();
  return {out_.as<std::byte>() + e * gemm2.bytes() + pair * gemm2.pair_bytes(),
          block_scales(e, before + 2 * pair * gemm2.scale_groups()), output_scales(e, gemm1.pairs + pair), nullptr};
}

Epilogue CpuExperts::gemm1_epilogue(std::int64_t e, std::int64_t pair) const {
  return {nullptr, output_scales(e, pair), bias(e, pair), recipe == Recipe::nvfp4_w4a4_cutlass};
}

Epilogue CpuExperts::gemm2_epilogue(std::int64_t e, std::int64_t pair) const {
  return {nullptr, output_scales(e, gemm1.pairs + pair), bias(e, gemm1.pairs + pair), false};
}

// One work item is a few pairs, expert by expert, so that the pages of a mapped file are read in order.
void CpuExperts::fill(const ExpertWeights& weights, const LineKernels& lines, ThreadPool& pool) {
  check_weights(layer, weights);
  check_formats(recipe, weights);
  if (weights.count() != experts) {
    fail(ErrorCode::usage, "reload with " + std::to_string(weights.count()) + " experts", std::to_string(experts));
  }
  const LayerInputScales scales = layer_input_scales(recipe, weights.input_scales);
  input1 = input_rounding(recipe, scales.gemm1);
  input2 = input_rounding(recipe, scales.gemm2);
  const std::int64_t longest = std::max(gemm1.cols, gemm2.cols);
  const Buffer scratch =
      host_buffer(static_cast<std::size_t>(pool.size() * pack_scratch_floats(longest)) * sizeof(float));
  ExpertRelease release(weights, pairs());
  std::atomic<bool> far1{false}, far2{false};
  const std::vector<std::int64_t> pieces =
      packing_pieces(experts * pairs(), static_cast<std::int64_t>(in_.bytes() + out_.bytes()), pool.size());
  pool.parallel_for(std::ssize(pieces) - 1, 1, [&](std::int64_t first, std::int64_t last, int worker) {
    const PackTools tools{lines, scratch.as<float>() + worker * pack_scratch_floats(longest)};
    for (std::int64_t i = pieces[first]; i < pieces[last];) {
      const std::int64_t e = i / pairs(), expert = e * pairs();
      const std::int64_t begin = i - expert, end = std::min(pieces[last] - expert, pairs());
      if (begin == 0) pack_biases(weights, e);
      take_pages(e, begin, end);
      for (std::int64_t pair = begin; pair < end; ++pair) {
        if (pair < gemm1.pairs) pack_gemm1_pair(weights, e, pair, tools, far1);
        if (pair >= gemm1.pairs) pack_gemm2_pair(weights, e, pair - gemm1.pairs, tools, far2);
      }
      release.packed(e, end - begin);
      i = expert + end;
    }
    finish_lines();
  });
  const bool mxfp4 = gemm1.format == Format::mxfp4;
  gemm1.near_scales = mxfp4 && (!far1 || (near_scales(weights.gate, pool) && near_scales(weights.up, pool)));
  gemm2.near_scales = mxfp4 && (!far2 || near_scales(weights.down, pool));
}

// Of the pairs of an expert, counted through both products.
void CpuExperts::take_pages(std::int64_t e, std::int64_t begin, std::int64_t end) const {
  const auto take = [e](const Buffer& buffer, const PanelLayout& layout, std::int64_t first, std::int64_t last) {
    const std::int64_t start = e * layout.bytes();
    take_huge_pages(buffer, static_cast<std::size_t>(start + first * layout.pair_bytes()),
                    static_cast<std::size_t>(start + last * layout.pair_bytes()));
  };
  if (begin < gemm1.pairs) take(in_, gemm1, begin, std::min(end, gemm1.pairs));
  if (end > gemm1.pairs) take(out_, gemm2, std::max(begin - gemm1.pairs, std::int64_t{0}), end - gemm1.pairs);
}

void CpuExperts::pack_gemm1_pair(const ExpertWeights& weights, std::int64_t e, std::int64_t pair,
                                 const PackTools& tools, std::atomic<bool>& far) {
  PairData to = gemm1_data(e, pair);
  to.perhaps_far = &far;
  const std::int64_t row = pair * gemm1_columns();
  const QuantTensor& first = gated() ? weights.gate[e] : weights.up[e];
  const QuantTensor& second = weights.up[e];
  const float up_scale = upstream_gate_alpha ? first.tensor_scale : second.tensor_scale;
  const PanelSource panels[2] = {{&first, row, input1.output_factor * first.tensor_scale},
                                 {&second, gated() ? row : row + kPanelRows, input1.output_factor * up_scale}};
  pack_pair(gemm1, panels, tools, to);
}

void CpuExperts::pack_gemm2_pair(const ExpertWeights& weights, std::int64_t e, std::int64_t pair,
                                 const PackTools& tools, std::atomic<bool>& far) {
  PairData to = gemm2_data(e, pair);
  to.perhaps_far = &far;
  const QuantTensor& down = weights.down[e];
  const float scale = input2.output_factor * down.tensor_scale;
  const PanelSource panels[2] = {{&down, pair * kPairRows, scale}, {&down, pair * kPairRows + kPanelRows, scale}};
  pack_pair(gemm2, panels, tools, to);
}

void CpuExperts::pack_biases(const ExpertWeights& weights, std::int64_t e) {
  if (!layer.has_bias) return;
  float* to = bias(e, 0);
  for (std::int64_t i = 0; i < layer.intermediate; ++i) {
    if (!gated()) {
      to[i] = decode_bias(weights.up_bias[e], i);
      continue;
    }
    float* pair = to + i / kPanelRows * kPairRows;
    pair[i % kPanelRows] = decode_bias(weights.gate_bias[e], i);
    pair[kPanelRows + i % kPanelRows] = decode_bias(weights.up_bias[e], i);
  }
  float* down = to + gemm1.pairs * kPairRows;
  for (std::int64_t h = 0; h < layer.width(); ++h) down[h] = decode_bias(weights.down_bias[e], h);
}

}  // namespace sluice::cpu
