// Packed experts of one layer, as the `cpu` runner keeps them.
//
// Made by prepare, filled again by reload, read by run from many threads. The packed copy has the size of the weights
// in their own format plus padding (16 or 32 rows a matrix, 64 columns); packing takes 16 decoded rows of scratch a
// thread on top.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/buffer.h"
#include "core/thread_pool.h"
#include "cpu/inputs.h"
#include "cpu/panel.h"
#include "moe/runner.h"

namespace sluice::cpu {

class CpuExperts final : public PreparedExperts {
 public:
  // Takes the memory; fill() puts weights into it.
  CpuExperts(const Problem& problem, std::int64_t experts_);

  // Packs all experts in parallel. Throws Error when shapes or formats don't fit.
  void fill(const ExpertWeights& weights, const LineKernels& lines, ThreadPool& pool);

  std::int64_t resident_bytes() const override;

  // Pairs of expert e: GEMM1 pairs are (gate panel, up panel) when gated, else two up panels; GEMM2 pairs two panels.
  PackedPair gemm1_pair(std::int64_t e, std::int64_t pair) const {
    const PairData d = gemm1_data(e, pair);
    return {d.records, d.block_scales};
  }
  PackedPair gemm2_pair(std::int64_t e, std::int64_t pair) const {
    const PairData d = gemm2_data(e, pair);
    return {d.records, d.block_scales};
  }
  // Bias and output scales in the order of the pair's rows.
  Epilogue gemm1_epilogue(std::int64_t e, std::int64_t pair) const;
  Epilogue gemm2_epilogue(std::int64_t e, std::int64_t pair) const;

  bool gated() const { return is_gated(layer.activation.kind); }
  // Output columns of one GEMM1 pair.
  std::int64_t gemm1_columns() const { return gated() ? kPanelRows : kPairRows; }

  LayerSpec layer;
  Recipe recipe;
  bool upstream_gate_alpha;
  ActivationNumbers numbers;
  InputRounding input1;  // of GEMM1
  InputRounding input2;
  std::int64_t experts = 0;  // E_local
  PanelLayout gemm1;         // of one expert
  PanelLayout gemm2;

 private:
  // Pairs of both products are counted together in the arrays of floats.
  std::int64_t pairs() const { return gemm1.pairs + gemm2.pairs; }
  float* bias(std::int64_t e, std::int64_t pair) const {
    return layer.has_bias ? biases_.as<float>() + (e * pairs() + pair) * kPairRows : nullptr;
  }
  float* output_scales(std::int64_t e, std::int64_t pair) const {
    return output_scales_.data() != nullptr ? output_scales_.as<float>() + (e * pairs() + pair) * kPairRows : nullptr;
  }
  float* block_scales(std::int64_t e, std::int64_t first) const {
    return gemm1.scaled ? block_scales_.as<float>() + e * block_scales_of_expert() + first : nullptr;
  }
  std::int64_t block_scales_of_expert() const {
    return 2 * (gemm1.pairs * gemm1.scale_groups() + gemm2.pairs * gemm2.scale_groups());
  }
  PairData gemm1_data(std::int64_t e, std::int64_t pair) const;
  PairData gemm2_data(std::int64_t e, std::int64_t pair) const;
  void pack_gemm1_pair(const ExpertWeights& weights, std::int64_t e, std::int64_t pair, const PackTools& tools,
                       std::atomic<bool>& far);
  void pack_gemm2_pair(const ExpertWeights& weights, std::int64_t e, std::int64_t pair, const PackTools& tools,
                       std::atomic<bool>& far);
  void pack_biases(const ExpertWeights& weights, std::int64_t e);
  void take_pages(std::int64_t e, std::int64_t begin, std::int64_t end) const;

  Buffer in_;   // E_local x gemm1
  Buffer out_;  // E_local x gemm2
  // f32, empty where there are none:
  Buffer biases_;         // E_local x [gemm1 pairs + gemm2 pairs, 32]
  Buffer output_scales_;  // the same
  Buffer block_scales_;   // E_local x [pairs, scale groups, 2 panels] of gemm1, then of gemm2
};

ActivationNumbers activation_numbers(const ActivationSpec& spec);

}  // namespace sluice::cpu
