// Asks a WeightSource for everything that loading the model would, in the same order, without touching any data: what
// `sluice check` and `sluice explain` know of the weights comes from it.
//
// Called once for a source, by one thread. A test holds it against model::load_decoder. Passes on what the source
// throws, unless the source collects its findings (ckpt::SchemeOptions).
#pragma once

#include "checkpoint/scheme.h"
#include "model/config.h"

namespace sluice::app {

void ask_for_weights(const model::ModelConfig& config, ckpt::WeightSource& source);

}  // namespace sluice::app
