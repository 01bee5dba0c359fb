// What came out of a step on the rank that sampled: plain data. Made by Executor, read by Engine.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/request.h"

namespace sluice::engine {

// One entry for each row of logits of the plan, sampled ones first.
struct StepResult {
  std::vector<std::int32_t> tokens;      // [rows] -1 where the logits have a NaN or nothing finite
  std::vector<float> logprobs;           // [rows] of the token, at temperature 1
  std::int64_t top_width = 0;            // the most that any row asked for
  std::vector<std::int32_t> top_tokens;  // [rows, top_width], -1 beyond what the row asked for
  std::vector<float> top_logprobs;       // [rows, top_width]
  std::vector<float> logits;             // [rows asked for, V], in the order asked
  std::int64_t weight_bytes = 0;         // that the step had to read: all dense weights, and the chosen experts
  double execute_seconds = 0;
  double sample_seconds = 0;

  // The most probable tokens of a row.
  std::vector<TokenLogprob> top(std::int64_t row) const;
};

}  // namespace sluice::engine
