#include "dispatch/after_experts.h"

namespace sluice {

std::string_view no_sum_reason(const AfterExperts& a) {
  if (a.sizes.tp == 1) return "one rank";
  if (a.sizes.a2a != MoeA2a::none) return "slot rows are summed at home";
  if (a.fused_into_norm) return "the next norm sums";
  if (a.scatter_follows) return "a reduce-scatter follows";
  if (a.scattered_by_dp) return "the reduce-scatter over dp groups has summed";
  if (a.tensor_parallel_path && a.fp4_gathered) return "the reduce-scatter of gathered FP4 rows has summed";
  return {};
}

}  // namespace sluice
