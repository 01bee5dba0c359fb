// A request in work: its tokens, how far they are computed, and the KV blocks that it holds. Plain data.
//
// Owned by the scheduler; the engine writes results into it between plans. Everything here but `blocks` and `computed`
// survives preemption, after which the tokens are computed again.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/request.h"

namespace sluice::engine {

struct Sequence {
  RequestId id{};
  Request request;
  std::vector<std::int32_t> tokens;    // prompt, then generated
  std::int64_t computed = 0;           // leading tokens whose keys and values are in the cache
  std::vector<std::int32_t> blocks;    // KV blocks, by position / block_tokens
  std::vector<float> prompt_logprobs;  // [0, prompt - 1) so far; entry p is of prompt token p + 1
  Timing timing;

  std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t prompt_length() const { return static_cast<std::int64_t>(request.prompt.size()); }
  std::int64_t generated() const { return length() - prompt_length(); }
  std::int64_t pending() const { return length() - computed; }  // at least 1 while it is in work
  // One token to go, and it was generated: the step of every token of an answer.
  bool decoding() const { return pending() == 1 && generated() > 0; }
  // Prompt positions from here on still owe the log-probability of their next token.
  std::int64_t scored() const { return static_cast<std::int64_t>(prompt_logprobs.size()); }
  bool wants_sample() const { return request.max_new_tokens > 0 || request.last_logits; }
};

}  // namespace sluice::engine
