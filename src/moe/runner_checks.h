// Checks that every runner makes: weights against the layer when they are prepared, arguments when it runs.
//
// Called by runners. Pure functions; they throw Error and cost O(experts) and O(1).
#pragma once

#include <cstdint>

#include "moe/recipe.h"
#include "moe/runner.h"
#include "moe/spec.h"
#include "moe/weights.h"

namespace sluice {

// Throws Error(bad_input) naming list and expert when a matrix or a bias is missing, superfluous or of the wrong shape.
void check_weights(const LayerSpec& layer, const ExpertWeights& weights);

// Throws Error(unsupported) naming list and expert when the codes or scales of a matrix are not those that the recipe
// computes with (recipe.h; how each format is carried: weights.h).
void check_formats(Recipe recipe, const ExpertWeights& weights);

// Throws Error(usage) when args do not fit the layer, the recipe or the number of experts held. RunArgs::quantized is
// refused, too, unless the runner says that it takes it.
enum class InputKinds : std::uint8_t { plain, plain_or_quantized };
void check_run_args(const LayerSpec& layer, Recipe recipe, std::int64_t local_experts, const RunArgs& args,
                    InputKinds kinds = InputKinds::plain);

}  // namespace sluice
