// Log-probabilities of given tokens from logits on the host, for prompt_logprobs. Pure.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::engine {

// log softmax(logits)[token], summed in double. NaN when a logit is NaN or none is finite.
float log_probability(std::span<const float> logits, std::int32_t token);

}  // namespace sluice::engine
