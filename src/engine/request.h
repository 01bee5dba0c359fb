// What the engine is asked for and what it answers: plain data, token ids only. Text, stop strings and templates belong
// to the caller, who ends a request early with Engine::cancel. validate() is pure and may be called from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::engine {

enum class RequestId : std::uint64_t {};

struct LogitBias {
  std::int32_t token = 0;
  float bias = 0.0f;  // added to the logit; -infinity bans the token
};

// How the next token is chosen. Logits are changed in this order: repetition penalty, frequency and presence penalty,
// logit_bias, the ban of end tokens below min_new_tokens; then temperature, top_k, top_p over what top_k left, min_p.
// Log-probabilities are always those of the unchanged logits at temperature 1.
struct Sampling {
  float temperature = 0.0f;  // 0 = greedy; ties to the lowest id
  std::int32_t top_k = 0;    // 0 = all
  float top_p = 1.0f;
  float min_p = 0.0f;
  std::uint64_t seed = 0;           // with the number of the generated token it fixes the random number, in any batch
  float presence_penalty = 0.0f;    // subtracted from the logit of every token that the answer has
  float frequency_penalty = 0.0f;   // subtracted once for every time that the answer has the token
  float repetition_penalty = 1.0f;  // logits of tokens of prompt and answer are divided by it, negative ones multiplied
  std::vector<LogitBias> logit_bias = {};  // several for one token add up
};

struct Request {
  std::vector<std::int32_t> prompt;   // token ids, at least one
  std::int64_t max_new_tokens = 64;   // 0 = only read the prompt (for prompt_logprobs and last_logits)
  std::int64_t min_new_tokens = 0;    // no token of eos_ids and stop_ids is chosen before
  std::vector<std::int32_t> eos_ids;  // the request ends with one of these unless ignore_eos; still reported as a token
  std::vector<std::int32_t> stop_ids;  // the same whatever ignore_eos says
  bool ignore_eos = false;
  Sampling sampling;
  std::int32_t top_logprobs = 0;         // most probable tokens wanted with each generated token, at most kMostTop
  bool prompt_logprobs = false;          // log-probability of each prompt token after the first
  std::int32_t prompt_top_logprobs = 0;  // likewise for each prompt token after the first; needs prompt_logprobs
  bool last_logits = false;              // logits after the last prompt token
  std::int32_t priority = 0;             // higher first, with SchedulePolicy::priority
  std::uint64_t cache_salt = 0;          // prefixes are shared only among requests with the same salt
};

inline constexpr std::int32_t kMostTop = 128;

// Throws Error(usage), naming the numbers, for an empty prompt, ids outside the vocabulary, a prompt that leaves no
// room in the context, or sampling values out of range. End ids outside the vocabulary never come up and are accepted.
void validate(const Request& request, std::int64_t vocab, std::int64_t context);

enum class FinishReason : std::uint8_t {
  none,
  stop,       // one of eos_ids or stop_ids, the last token of the answer
  length,     // max_new_tokens, or the end of the context
  error,      // Event::error says why
  cancelled,  // by the caller; never in an event
};

std::string_view finish_name(FinishReason reason);  // "stop", "length", ...

struct TokenLogprob {
  std::int32_t token = -1;
  float logprob = 0.0f;
  bool operator==(const TokenLogprob&) const = default;
};

// When things happened to a request; a value of zero = not yet.
struct Timing {
  using Time = std::chrono::steady_clock::time_point;
  Time submitted{};
  Time scheduled{};    // first step that computed some of it
  Time first_token{};  // or the end of the prompt, when no token is asked for
};

// One thing that happened to a request in a step. At most one event a request and step; the one with finish != none is
// the last.
struct Event {
  RequestId id{};
  std::int32_t token = -1;        // generated token, -1 when the event carries none
  float logprob = 0.0f;           // of `token`
  std::vector<TokenLogprob> top;  // [top_logprobs] most probable first, ties to the lowest id
  FinishReason finish = FinishReason::none;
  std::string error;                                  // finish == error: what failed
  std::vector<float> prompt_logprobs;                 // [n - 1], once, with the first event
  std::vector<std::vector<TokenLogprob>> prompt_top;  // [n - 1][prompt_top_logprobs], likewise
  std::vector<float> last_logits;                     // [V], likewise
  std::int64_t cached_tokens = 0;                     // of the prompt, that the prefix cache had at the first schedule
  Timing timing;
};

}  // namespace sluice::engine
