// What the engine is asked for and what it answers: plain data, token ids only. Text, stop strings and templates belong
// to the caller, who stops a request early with Engine::cancel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::engine {

enum class RequestId : std::uint64_t {};

struct Sampling {
  float temperature = 0.0f;  // 0 = greedy; ties to the lowest id
  std::int32_t top_k = 0;    // 0 = all
  float top_p = 1.0f;
  float min_p = 0.0f;
  std::uint64_t seed = 0;  // with the number of the generated token it fixes the random number, whatever the batch
};

struct Request {
  std::vector<std::int32_t> prompt;    // token ids, at least one
  std::int64_t max_new_tokens = 64;    // 0 = only read the prompt (for prompt_logprobs and last_logits)
  std::vector<std::int32_t> stop_ids;  // the request ends with one of these; it is still reported as a token
  Sampling sampling;
  bool prompt_logprobs = false;  // log-probability of each prompt token after the first
  bool last_logits = false;      // logits after the last prompt token
};

// Throws Error(usage), naming the numbers, for an empty prompt, ids outside the vocabulary, a prompt that leaves no
// room in the context, or sampling values out of range.
void validate(const Request& request, std::int64_t vocab, std::int64_t context);

enum class FinishReason : std::uint8_t {
  none,
  stop,       // one of stop_ids
  length,     // max_new_tokens
  error,      // Event::error says why
  cancelled,  // by the caller; never in an event
};

std::string_view finish_name(FinishReason reason);  // "stop", "length", ...

// One thing that happened to a request in a step. At most one event a request and step; the one with finish != none is
// the last.
struct Event {
  RequestId id{};
  std::int32_t token = -1;  // generated token, -1 when the event carries none
  float logprob = 0.0f;     // of `token`, at temperature 1
  FinishReason finish = FinishReason::none;
  std::string error;                   // finish == error: what failed
  std::vector<float> prompt_logprobs;  // [n - 1], once, when the prompt has been read
  std::vector<float> last_logits;      // [V], once, likewise
};

}  // namespace sluice::engine
