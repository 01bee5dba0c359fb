// One row of logits while a token of it is decided: drawing under top_k, top_p and min_p, log-probabilities, the most
// probable tokens. Used by sample.cc only; one row and one thread at a time, on scratch of the caller. All logits are
// below infinity and at least one is finite, except for best().
#pragma once

#include <cstdint>
#include <limits>

#include "cpu/ops_kernels.h"
#include "moe/backend.h"

namespace sluice::cpu {

inline constexpr std::int64_t kSampleBlock = 1024;  // weights of a block are summed in f32, the sums of blocks in f64

inline std::int64_t sample_blocks(std::int64_t vocab) { return (vocab + kSampleBlock - 1) / kSampleBlock; }

// Tokens that may be drawn: logits above `value`, those equal to it with ids below `tie_end`, and of these the ones
// whose weight is at least min_weight times that of the most probable token.
struct Filter {
  float value = -std::numeric_limits<float>::infinity();
  std::int64_t tie_end = std::numeric_limits<std::int64_t>::max();
  float min_weight = 0;
};

// Memory of one worker, for rows of up to n logits.
struct Scratch {
  Candidate* candidates = nullptr;  // [n]
  double* sums = nullptr;           // [blocks]
};

// One row while it is being decided. The weight of a logit is exp((logit - max) / temperature).
class RowSampler {
 public:
  RowSampler(const OpsKernels& kernels, const float* logits, std::int64_t n, float max, const Scratch& scratch)
      : kernels_(kernels), logits_(logits), n_(n), max_(max), scratch_(scratch) {}

  std::int32_t draw(const SampleParams& params);
  double log_total();  // log of the sum of weights of all tokens at temperature 1
  // The `count` best tokens, best first, ties to the lowest id; in the scratch, until the next call.
  const Candidate* best(std::int64_t count);

 private:
  // Calls f(row, offset within the block) for the one or two parts of a block: ids below tie_end, and the others.
  template <class F>
  void for_parts(std::int64_t block, const Filter& filter, F f) const;
  double sum_blocks(const Filter& filter);
  std::int32_t invert(double target, const Filter& filter) const;

  Filter filter_of(const SampleParams& params);
  std::int64_t gather(float depth);
  std::int64_t best_count(std::int64_t count);
  std::int64_t best_mass(std::int64_t count, double mass, bool gathered);
  double mass_of(std::int64_t first, std::int64_t last) const;

  const OpsKernels& kernels_;
  const float* logits_;
  std::int64_t n_;
  float max_;
  Scratch scratch_;
  float inverse_temperature_ = 1.0f;
};

}  // namespace sluice::cpu
