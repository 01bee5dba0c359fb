// Random weights, batches and scratch of one layer, for bench_moe. The weights of all experts are views at random
// places of one block of codes (and one of scales), so that the canonical copy stays small; the runner's packed copy
// has its full size.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "app/bench_moe.h"
#include "core/buffer.h"
#include "moe/runner.h"
#include "numerics/bf16.h"

namespace sluice::app {

struct MoeBatch {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::int32_t top_k = 0;
  std::vector<Bf16> rows;      // [T, H]
  std::vector<SlotId> ids;     // [T, k]
  std::vector<float> weights;  // [T, k]

  MoeBatch row(std::int64_t t) const;
};

class BenchLayer {
 public:
  BenchLayer(const MoeShape& shape, std::uint64_t seed, Recipe recipe = Recipe::bf16);

  const Problem& problem() const { return problem_; }
  SlotRange slots() const { return {0, shape_.local_experts}; }
  ExpertWeights weights() const;  // the same values at every call

  MoeBatch batch(std::int64_t tokens);
  void route(MoeBatch& batch);  // new ids: k distinct experts a token, all equally likely

  double active_experts(const MoeBatch& batch) const;  // local experts with at least one row
  double local_routes(const MoeBatch& batch) const;
  // Of one expert's matrices in the format of the file, scales included.
  double expert_bytes() const;

 private:
  std::uint64_t random();
  float uniform();  // [-1, 1)
  QuantTensor matrix(std::int64_t rows, std::int64_t cols, std::uint64_t place) const;
  BiasView bias(std::int64_t count, std::uint64_t place) const;
  BlockScaleView scales(std::int64_t rows, std::int64_t cols, std::uint64_t place) const;
  std::int64_t offset(std::uint64_t place) const;
  void fill_scales(std::int64_t count);

  MoeShape shape_;
  Problem problem_;
  std::uint64_t state_;
  std::uint64_t seed_;
  struct Blocks {
    std::vector<Bf16> values;         // weights of recipe bf16, and biases
    std::vector<std::uint8_t> codes;  // of quantised recipes
    std::vector<std::uint8_t> byte_scales;
    std::vector<float> float_scales;
  };
  std::shared_ptr<Blocks> blocks_;
};

// Output and workspace of a runner for one token count.
class MoeScratch {
 public:
  MoeScratch(const Runner& runner, const Problem& problem, std::int64_t tokens);
  void run(const Runner& runner, const PreparedExperts& prepared, const MoeBatch& batch, SlotRange slots);
  std::vector<float> row(std::int64_t t) const;

 private:
  std::int64_t hidden_;
  Buffer workspace_;
  std::vector<Bf16> out_;  // [T, H]
};

// Throws Error(check_failed) for an error beyond the bound.
void require_correct(double error, double bound, std::int64_t tokens);

}  // namespace sluice::app
