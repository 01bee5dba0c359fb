#include "model/rank_part.h"

#include <fmt/core.h>

#include "moe/weight_slices.h"

namespace sluice::model {
namespace {

Share inner_share(const LayerSpec& spec, Recipe stored, const RankPlan& plan) {
  if (plan.expert.whole()) return {0, spec.intermediate};
  return cut_share(spec.intermediate, cut_group(stored), plan.expert, "the intermediate size of an expert");
}

}  // namespace

ckpt::ExpertSlice expert_slice(const LayerSpec& spec, Recipe stored, const Placement& placement, const RankPlan& plan) {
  ckpt::ExpertSlice slice;
  if (!plan.expert.whole()) slice.inner = inner_share(spec, stored, plan);
  if (plan.experts.whole() && placement.slots() == placement.experts()) return slice;
  const SlotRange slots = placement.of_rank(plan.experts.index);
  for (std::int32_t s = slots.first; s < slots.first + slots.count; ++s) {
    slice.experts.push_back(placement.expert_of(SlotId{s}));
  }
  return slice;
}

Problem problem_of_rank(const Problem& whole, Recipe stored, const RankPlan& plan) {
  Problem problem = whole;
  problem.layer.intermediate = inner_share(whole.layer, stored, plan).count();
  problem.parallel = {plan.experts.count, plan.experts.index, plan.expert.count, plan.expert.index};
  return problem;
}

}  // namespace sluice::model
