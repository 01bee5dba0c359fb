// Dense projections on the CPU: y = x W^T (+ bias), with weights packed once in panels.
//
// Called by the CPU backend: make_dense at load time, linear at run time, which allocates nothing and computes on the
// pool. Row-invariant (architecture 4.5): a row's bits depend on nothing but the row, the weight and the instruction
// set. Quantised weights stay in their format, and inputs are quantised here where the recipe says so. Weights of
// recipe f32 that come in bf16 stay in bf16 and are widened in registers, which is exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/buffer.h"
#include "core/thread_pool.h"
#include "core/workspace.h"
#include "cpu/inputs.h"
#include "cpu/isa/line_kernels.h"
#include "moe/backend.h"

namespace sluice::cpu {

class PackedDense final : public DenseWeight {
 public:
  PackedDense(const QuantTensor& weight, Recipe recipe);

  PackedPair pair(std::int64_t p) const { return {data_.as<std::byte>() + p * layout.pair_bytes(), block_scales(p)}; }
  // [32], or nullptr where the recipe has none.
  float* output_scales(std::int64_t p) const {
    return output_scales_.data() == nullptr ? nullptr : output_scales_.as<float>() + p * kPairRows;
  }

  PanelLayout layout;
  DType compute;  // of x: bf16 or f32
  InputRounding input;

 private:
  friend std::unique_ptr<PackedDense> make_dense(const QuantTensor& weight, Recipe recipe, ThreadPool& pool,
                                                 const LineKernels& lines);
  void fill(const QuantTensor& weight, const LineKernels& lines, ThreadPool& pool);

  float* block_scales(std::int64_t p) const {
    return layout.scaled ? block_scales_.as<float>() + 2 * p * layout.scale_groups() : nullptr;
  }

  Buffer data_;
  Buffer output_scales_;  // [pairs, 32]
  Buffer block_scales_;   // [pairs, scale groups, 2]
};

// Packs `weight` for a recipe (moe/backend.h). f32 and bf16 take any format that decode_row knows, the others their
// own. The packed bytes do not depend on `lines`.
std::unique_ptr<PackedDense> make_dense(const QuantTensor& weight, Recipe recipe, ThreadPool& pool,
                                        const LineKernels& lines = line_kernels_scalar());

// Workspace bytes of linear() with up to `tokens` rows of up to `cols` inputs.
std::size_t linear_workspace_bytes(std::int64_t tokens, std::int64_t cols);

// args.weight is a PackedDense; x has its compute type, y is f32 or bf16. Throws Error(usage) when they don't fit.
void linear(const GemmKernels& kernels, ThreadPool& pool, const LinearArgs& args, Workspace& workspace);

}  // namespace sluice::cpu
