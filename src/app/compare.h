// How far a model's predictions are from those of a reference model on the same texts: what quantising costs, where
// accuracy on easy questions shows nothing.
//
// Called by `sluice verify --against` and tests. One thread; both models are loaded, their tokenizers must agree.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/wiring.h"

namespace sluice::app {

struct ModelDistance {
  std::int64_t tokens = 0;  // positions with a next token
  double mean_kl = 0;       // of KL(reference || model) over positions, in nats
  double max_kl = 0;
  double mean_logprob = 0;    // |difference of the log-probability of the next token|
  double p99_logprob = 0;     // 99th percentile of it
  double same_top_token = 0;  // share of positions where both have the same likeliest token
};

// KL(softmax(p) || softmax(q)) of two rows of logits, in float64. Infinite or NaN where the logits are.
double kl_divergence(const float* p, const float* q, std::int64_t vocab);

// Each text is cut at `max_tokens`. Throws Error(bad_input) when the models have different vocabularies or tokens.
ModelDistance compare_models(const LoadedModel& model, const LoadedModel& reference,
                             const std::vector<std::string>& texts, std::int64_t max_tokens,
                             const ProgressSink& progress);

}  // namespace sluice::app
