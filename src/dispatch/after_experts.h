// Whether the output of a MoE block still has to be summed over ranks (moe-runner-spec 2.7).
//
// Pure function of what is known at load time; a model that sums twice or not at all is wrong without any error.
#pragma once

#include <cstdint>
#include <string_view>

#include "moe/parallel.h"

namespace sluice {

struct AfterExperts {
  ParallelSizes sizes;                // as resolve() returns them
  bool fused_into_norm = false;       // the next layer's norm does the sum
  bool scatter_follows = false;       // a reduce-scatter comes next, which sums
  bool scattered_by_dp = false;       // combine has summed by a reduce-scatter over dp groups
  bool tensor_parallel_path = false;  // asked for the sum over pieces of experts or of the shared expert
  bool fp4_gathered = false;          // tokens were gathered as NVFP4: combine ends in a reduce-scatter
};

// Why no sum is wanted; empty = sum over all ranks.
std::string_view no_sum_reason(const AfterExperts& after);
inline bool sums_after_experts(const AfterExperts& after) { return no_sum_reason(after).empty(); }

}  // namespace sluice
