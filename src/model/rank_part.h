// Which part of a model a rank holds: heads, pieces of dense FFNs, experts and pieces of each expert.
//
// Called at load time by the decoder's loader, and before that by whoever asks runners about a rank's problem or plans
// its memory. Pure functions of what every rank knows (configuration and file headers), so that all ranks agree.
#pragma once

#include <cstdint>
#include <memory>

#include "checkpoint/scheme.h"
#include "model/config.h"
#include "moe/parallel.h"
#include "moe/placement.h"
#include "moe/runner.h"

namespace sluice::model {

// The experts of a rank and its piece of each. `spec` is that of the whole model, `stored` the recipe that the format
// of the files asks for. Throws Error(unsupported) when the piece would be empty, naming the sizes that work.
ckpt::ExpertSlice expert_slice(const LayerSpec& spec, Recipe stored, const Placement& placement, const RankPlan& plan);

// What the runner of a rank is asked: `whole` with the rank's I and coordinates.
Problem problem_of_rank(const Problem& whole, Recipe stored, const RankPlan& plan);

}  // namespace sluice::model
