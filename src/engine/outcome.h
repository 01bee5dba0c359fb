// What a step's results mean for one sequence: the next token, scores of its prompt, and whether it ends. Called by
// Engine::step only; changes nothing but the sequence it is given.
#pragma once

#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"

namespace sluice::engine {

// What the sampler is to do with the rows of a sequence: choose the next token, score known ones. Written to the places
// of the plan's rows in `params`, which has one entry for each row of logits. Points into the sequence's penalties.
void set_params(const PlanSequence& plan, const Sequence& sequence, std::vector<SampleParams>& params);

// Whether the row of logits that is sampled is also wanted on the host.
bool shows_logits(const PlanSequence& plan, const Sequence& sequence);

// Advances the sequence. `logits` [V] are those of its sampled row, when it shows them. The event carries neither a
// token nor an end while the prompt is not finished.
Event apply(const PlanSequence& plan, Sequence& sequence, const StepResult& result, std::span<const float> logits);

}  // namespace sluice::engine
