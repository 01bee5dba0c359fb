#include "cpu/runner_experts.h"

#include <algorithm>
#include <string>

#include "core/error.h"
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

void check_formats(const ExpertWeights& weights) {
  for (const auto* list : {&weights.gate, &weights.up, &weights.down}) {
    for (const QuantTensor& w : *list) {
      const DType type = w.codes.dtype;
      if (type == DType::bf16 || type == DType::f16 || type == DType::f32) continue;
      fail(ErrorCode::unsupported, "expert weights are " + std::string(dtype_name(type)) + " in recipe bf16",
           "bf16, f16 or f32 weights", "choose a recipe for this format");
    }
  }
}

}  // namespace

ActivationNumbers activation_numbers(const ActivationSpec& spec) {
  return {kernel_activation(spec.kind), spec.alpha, spec.beta, spec.limit, spec.linear_beta};
}

CpuExperts::CpuExperts(const LayerSpec& layer_, std::int64_t experts_)
    : layer(layer_), numbers(activation_numbers(layer_.activation)), experts(experts_) {
  gemm1 = {ceil_div(layer.intermediate, gemm1_columns()), layer.width(), Element::bf16};
  gemm2 = {ceil_div(layer.width(), kPairRows), layer.intermediate, Element::bf16};
  in_ = host_buffer(static_cast<std::size_t>(experts * gemm1.bytes()));
  out_ = host_buffer(static_cast<std::size_t>(experts * gemm2.bytes()));
  const std::int64_t bias_floats = layer.has_bias ? experts * (gemm1.pairs + gemm2.pairs) * kPairRows : 0;
  biases_ = host_buffer(static_cast<std::size_t>(bias_floats) * sizeof(float));
}

std::int64_t CpuExperts::resident_bytes() const {
  return static_cast<std::int64_t>(in_.bytes() + out_.bytes() + biases_.bytes());
}

// One work item is a few pairs, expert by expert, so that the pages of a mapped file are read in order.
void CpuExperts::fill(const ExpertWeights& weights, ThreadPool& pool) {
  check_weights(layer, weights);
  check_formats(weights);
  if (weights.count() != experts) {
    fail(ErrorCode::usage, "reload with " + std::to_string(weights.count()) + " experts", std::to_string(experts));
  }
  const std::int64_t longest = std::max(gemm1.cols, gemm2.cols);
  const Buffer scratch =
      host_buffer(static_cast<std::size_t>(pool.size() * pack_scratch_floats(longest)) * sizeof(float));
  const std::int64_t pairs = gemm1.pairs + gemm2.pairs;
  constexpr std::int64_t kGrainPairs = 8;
  pool.parallel_for(experts * pairs, kGrainPairs, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* floats = scratch.as<float>() + worker * pack_scratch_floats(longest);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t e = i / pairs, pair = i % pairs;
      if (pair == 0) pack_biases(weights, e);
      if (pair < gemm1.pairs) pack_gemm1_pair(weights, e, pair, floats);
      if (pair >= gemm1.pairs) pack_gemm2_pair(weights, e, pair - gemm1.pairs, floats);
    }
  });
}

void CpuExperts::pack_gemm1_pair(const ExpertWeights& weights, std::int64_t e, std::int64_t pair, float* scratch) {
  std::byte* to = in_.as<std::byte>() + e * gemm1.bytes() + pair * gemm1.pair_bytes();
  const std::int64_t row = pair * gemm1_columns();
  const QuantTensor& first = gated() ? weights.gate[e] : weights.up[e];
  pack_panel(gemm1, {&first, row}, 0, scratch, to);
  pack_panel(gemm1, {&weights.up[e], gated() ? row : row + kPanelRows}, 1, scratch, to);
}

void CpuExperts::pack_gemm2_pair(const ExpertWeights& weights, std::int64_t e, std::int64_t pair, float* scratch) {
  std::byte* to = out_.as<std::byte>() + e * gemm2.bytes() + pair * gemm2.pair_bytes();
  const std::int64_t row = pair * kPairRows;
  pack_panel(gemm2, {&weights.down[e], row}, 0, scratch, to);
  pack_panel(gemm2, {&weights.down[e], row + kPanelRows}, 1, scratch, to);
}

void CpuExperts::pack_biases(const ExpertWeights& weights, std::int64_t e) {
  if (!layer.has_bias) return;
  float* to = bias(e);
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
