// From scheduling decisions to a StepPlan. Called by the scheduler; pure.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sequence.h"
#include "engine/step_plan.h"

namespace sluice::engine {

// The next `tokens` tokens of `sequence`, whose blocks hold them already.
struct PlanItem {
  Sequence* sequence = nullptr;
  std::int64_t tokens = 0;
};

// Which of the next `tokens` tokens of a sequence owe a prompt log-probability: [first, first + count), counted from
// `computed`.
struct ScoreRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
ScoreRange score_range(const Sequence& sequence, std::int64_t tokens);

// Whether the last of the next `tokens` tokens needs logits.
bool needs_sample(const Sequence& sequence, std::int64_t tokens);

StepPlan build_plan(const std::vector<PlanItem>& items, std::uint64_t number);

}  // namespace sluice::engine
