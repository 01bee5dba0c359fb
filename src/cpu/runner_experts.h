// Packed experts of one layer, as the `cpu` runner keeps them.
//
// Made by prepare, filled again by reload, read by run from many threads. The packed copy has the size of the bf16
// weights plus padding (16 or 32 rows a matrix); packing takes 16 decoded rows of scratch a thread on top.
#pragma once

#include <cstdint>

#include "core/buffer.h"
#include "core/thread_pool.h"
#include "cpu/panel.h"
#include "moe/runner.h"

namespace sluice::cpu {

class CpuExperts final : public PreparedExperts {
 public:
  // Takes the memory; fill() puts weights into it.
  CpuExperts(const LayerSpec& layer_, std::int64_t experts_);

  // Packs all experts in parallel. Throws Error when shapes or formats don't fit.
  void fill(const ExpertWeights& weights, ThreadPool& pool);

  std::int64_t resident_bytes() const override;

  // Pairs of expert e: GEMM1 pairs are (gate panel, up panel) when gated, else two up panels; GEMM2 pairs two panels.
  const std::byte* gemm1_pair(std::int64_t e, std::int64_t pair) const {
    return in_.as<std::byte>() + e * gemm1.bytes() + pair * gemm1.pair_bytes();
  }
  const std::byte* gemm2_pair(std::int64_t e, std::int64_t pair) const {
    return out_.as<std::byte>() + e * gemm2.bytes() + pair * gemm2.pair_bytes();
  }
  // [32] in the order of the pair's rows, or nullptr.
  const float* gemm1_bias(std::int64_t e, std::int64_t pair) const {
    return layer.has_bias ? bias(e) + pair * kPairRows : nullptr;
  }
  const float* gemm2_bias(std::int64_t e, std::int64_t pair) const {
    return layer.has_bias ? bias(e) + (gemm1.pairs + pair) * kPairRows : nullptr;
  }

  bool gated() const { return is_gated(layer.activation.kind); }
  // Output columns of one GEMM1 pair.
  std::int64_t gemm1_columns() const { return gated() ? kPanelRows : kPairRows; }

  LayerSpec layer;
  ActivationNumbers numbers;
  std::int64_t experts = 0;  // E_local
  PanelLayout gemm1;         // of one expert
  PanelLayout gemm2;

 private:
  float* bias(std::int64_t e) const { return biases_.as<float>() + e * (gemm1.pairs + gemm2.pairs) * kPairRows; }
  void pack_gemm1_pair(const ExpertWeights& weights, std::int64_t e, std::int64_t pair, float* scratch);
  void pack_gemm2_pair(const ExpertWeights& weights, std::int64_t e, std::int64_t pair, float* scratch);
  void pack_biases(const ExpertWeights& weights, std::int64_t e);

  Buffer in_;      // E_local x gemm1
  Buffer out_;     // E_local x gemm2
  Buffer biases_;  // E_local x [gemm1 pairs + gemm2 pairs, 32] f32; empty without biases
};

ActivationNumbers activation_numbers(const ActivationSpec& spec);

}  // namespace sluice::cpu
