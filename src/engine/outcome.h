// What a step's results mean for one sequence: the next token, scores of its prompt, and whether it ends. Called by
// Engine::step only; changes nothing but the sequence it is given.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/executor.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"

namespace sluice::engine {

// Rows of logits that this sequence wants on the host: the scored ones, then the sampled one if the request asks for
// it.
std::vector<std::int32_t> wanted_rows(const PlanSequence& plan, const Sequence& sequence);

// Advances the sequence. `logits` are its wanted rows, [wanted, V]. The event carries neither a token nor an end while
// the prompt is not finished.
Event apply(const PlanSequence& plan, Sequence& sequence, const StepResult& result, const float* logits,
            std::int64_t vocab);

}  // namespace sluice::engine
