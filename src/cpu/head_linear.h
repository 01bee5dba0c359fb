// Projections with one weight a head: y[t, h] = W_h x[t, h], in one call for all heads.
//
// For latent attention, which takes queries into the latent space and values out of it head by head: weights are small
// (V3: 128 x 512) and many, so that one call of linear() each would cost more in waking threads than in reading them.
// Made by CpuBackend::prepare_heads at load time; head_linear allocates nothing and computes on the pool. Sums are
// those of linear(): a row's bits depend on the row, the weight and the instruction set only.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "core/thread_pool.h"
#include "core/workspace.h"
#include "cpu/gemm.h"
#include "moe/backend.h"

namespace sluice::cpu {

// Heads one after the other, each in whole pairs of panels: [heads][pairs of a head]. `rows` and `cols` are those of
// one head.
class HeadWeights final : public DenseWeight {
 public:
  // Packs weights of any format that decode_row knows; compute bf16 rounds them once to bf16. Throws Error(usage) when
  // sizes differ, Error(unsupported) for other compute types.
  HeadWeights(const std::vector<QuantTensor>& weights, DType compute, ThreadPool& pool);

  std::int64_t heads() const { return heads_; }
  DType compute() const { return compute_; }
  const PanelLayout& layout() const { return layout_; }  // of one head
  const std::byte* pair(std::int64_t head, std::int64_t p) const {
    return data_.as<std::byte>() + (head * layout_.pairs + p) * layout_.pair_bytes();
  }
  // Workspace of head_linear, at most.
  std::int64_t scratch_bytes_per_token() const { return heads_ * packed_row_bytes(cols, Element::f32); }

 private:
  std::int64_t heads_;
  DType compute_;
  PanelLayout layout_;
  Buffer data_;
};

// args.weight is a HeadWeights. Throws Error(usage) when shapes or types don't fit.
void head_linear(const GemmKernels& kernels, ThreadPool& pool, const HeadLinearArgs& args, Workspace& workspace);

}  // namespace sluice::cpu
