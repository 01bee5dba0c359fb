// Rotary frequencies of one attention kind, from its parameters in config.json.
//
// Called at load time; the result goes to Backend::make_rope. Pure functions. Single precision on purpose: models were
// trained with float tables, and a table of doubles would turn late positions by another angle.
#pragma once

#include <vector>

#include "model/config.h"

namespace sluice::model {

struct RopeFrequencies {
  std::vector<float> inv_freq;  // [rotary_dim / 2]
  float factor = 1.0f;          // multiplies cos and sin
};

// Throws Error(unsupported) for RopeType::dynamic, whose frequencies would depend on the length of each sequence.
RopeFrequencies rope_frequencies(const RopeSpec& spec);

// By what YaRN with this `mscale` multiplies queries and keys each, for scores over `factor` times the context: 0.1
// mscale ln(factor) + 1. Models with mscale_all_dim multiply their softmax scale by its square.
double yarn_mscale(double factor, double mscale);

}  // namespace sluice::model
