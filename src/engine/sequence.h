// A request in work: its tokens, how far they are computed, and the KV blocks that it holds. Plain data.
//
// Owned by the scheduler; the engine writes results into it between plans. `blocks`, `published` and `computed` are the
// scheduler's; everything else survives preemption, after which the tokens are computed again.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/penalties.h"
#include "engine/request.h"

namespace sluice::engine {

struct Sequence {
  Sequence() = default;
  Sequence(RequestId number, Request r)
      : id(number), request(std::move(r)), tokens(request.prompt), penalties(request) {}

  RequestId id{};
  Request request;
  std::vector<std::int32_t> tokens;  // prompt, then generated
  std::int64_t computed = 0;         // leading tokens whose keys and values are in the cache
  std::vector<std::int32_t> blocks;  // KV blocks, by position / block_tokens
  std::int64_t published = 0;        // leading blocks that others can share
  std::int64_t overtaken = 0;        // younger requests that were admitted before it
  std::int64_t cached_tokens = 0;    // of the prompt, found in the prefix cache before any was computed twice
  bool preempted = false;            // at least once
  Timing timing;
  Penalties penalties{Request{}};
  std::vector<float> prompt_logprobs;                 // [0, prompt - 1) so far; entry p is of prompt token p + 1
  std::vector<std::vector<TokenLogprob>> prompt_top;  // likewise, when asked for

  std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t prompt_length() const { return static_cast<std::int64_t>(request.prompt.size()); }
  std::int64_t generated() const { return length() - prompt_length(); }
  std::int64_t pending() const { return length() - computed; }  // at least 1 while it is in work
  // One token to go, and it was generated: the step of every token of an answer.
  bool decoding() const { return pending() == 1 && generated() > 0; }
  // Prompt positions from here on still owe the log-probability of their next token.
  std::int64_t scored() const { return static_cast<std::int64_t>(prompt_logprobs.size()); }
  bool wants_sample() const { return request.max_new_tokens > 0 || request.last_logits; }
  // Tokens that may come from the prefix cache: not the last one, whose logits are wanted, nor any with a score to
  // come.
  std::int64_t reusable() const {
    const bool owes = request.prompt_logprobs && scored() + 1 < prompt_length();
    return owes ? scored() : length() - 1;
  }
};

}  // namespace sluice::engine
