// The oracle: the layer computed on the GPU by one thread an output, fp32, in the order and with the rounding points of
// moe/recipe.h, from the canonical weights. Slow, simple, and the same bits as the reference runner except where the
// exponential of an activation differs. For tests and benches, whose large cases a CPU cannot check in time.
//
// Recipes bf16, fp8-tensor and fp8-block. Owns a device copy of the weights; one thread at a time; rows() synchronises.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "cuda/reference_dot.h"
#include "moe/input_scales.h"
#include "moe/runner.h"

namespace sluice::cuda {

struct OracleExpert {
  DotMatrix gate, up, down;
  BiasView gate_bias, up_bias, down_bias;
};

// A batch in device memory.
struct OracleBatch {
  ConstTensorView hidden;          // [T, H] bf16
  const SlotId* ids = nullptr;     // [T, k]
  const float* weights = nullptr;  // [T, k]
  std::int32_t top_k = 0;
  std::int32_t first_slot = 0;
};

struct OracleRows {
  std::vector<float> input;         // [n * k, H] what GEMM1 reads, without the scales of sums
  std::vector<float> intermediate;  // [n * k, I] the same of GEMM2
  std::vector<float> slot_rows;     // [n * k, H] zeros where a slot is skipped
  std::vector<float> sum;           // [n, H] fp32, before the rounding to the output type
};

class Oracle {
 public:
  // Uploads each range of host memory that the views cover once, however many views share it.
  Oracle(const Problem& problem, const ExpertWeights& weights, int device);

  // The given tokens of a batch.
  OracleRows rows(const OracleBatch& batch, const std::vector<std::int64_t>& tokens) const;

 private:
  struct Range;
  void upload(const ExpertWeights& weights);
  const void* place(const void* host) const;

  Problem problem_;
  LayerInputScales input_scales_;
  std::int32_t experts_ = 0;
  int device_ = 0;
  std::vector<Range> ranges_;
  Buffer memory_;
  Buffer table_;  // [E_local] OracleExpert
};

struct Oracle::Range {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  std::size_t at = 0;  // offset in memory_
};

}  // namespace sluice::cuda
