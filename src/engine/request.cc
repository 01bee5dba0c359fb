#include "engine/request.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace sluice::engine {
namespace {

void require(bool ok, const std::string& what, const std::string& expected) {
  if (!ok) fail(ErrorCode::usage, what, expected);
}

void validate_bias(const std::vector<LogitBias>& list, std::int64_t vocab) {
  for (const LogitBias& b : list) {
    require(b.token >= 0 && b.token < vocab, fmt::format("logit_bias of token id {}", b.token),
            fmt::format("0 to {}", vocab - 1));
    require(!std::isnan(b.bias) && b.bias < INFINITY, fmt::format("logit_bias {} of token id {}", b.bias, b.token),
            "a number below infinity");
  }
}

void validate(const Sampling& s, std::int64_t vocab) {
  require(std::isfinite(s.temperature) && s.temperature >= 0.0f, fmt::format("temperature {}", s.temperature),
          "0 or more");
  require(s.top_k >= 0, fmt::format("top_k {}", s.top_k), "0 (all tokens) or more");
  require(s.top_p > 0.0f && s.top_p <= 1.0f, fmt::format("top_p {}", s.top_p), "above 0, at most 1");
  require(s.min_p >= 0.0f && s.min_p <= 1.0f, fmt::format("min_p {}", s.min_p), "0 to 1");
  require(std::isfinite(s.presence_penalty), fmt::format("presence_penalty {}", s.presence_penalty), "a finite number");
  require(std::isfinite(s.frequency_penalty), fmt::format("frequency_penalty {}", s.frequency_penalty),
          "a finite number");
  require(std::isfinite(s.repetition_penalty) && s.repetition_penalty > 0.0f,
          fmt::format("repetition_penalty {}", s.repetition_penalty), "above 0 and finite");
  validate_bias(s.logit_bias, vocab);
}

void validate_top(std::int32_t count, const char* what) {
  require(count >= 0 && count <= kMostTop, fmt::format("{} {}", what, count), fmt::format("0 to {}", kMostTop));
}

// Whether no token is left where no end token may be chosen.
bool ends_are_all(const Request& request, std::int64_t vocab) {
  if (std::ssize(request.eos_ids) + std::ssize(request.stop_ids) < vocab) return false;
  std::vector<bool> is_end(static_cast<std::size_t>(vocab));
  for (const std::vector<std::int32_t>* ids : {&request.eos_ids, &request.stop_ids}) {
    for (const std::int32_t id : *ids) {
      if (id >= 0 && id < vocab) is_end[static_cast<std::size_t>(id)] = true;
    }
  }
  return std::find(is_end.begin(), is_end.end(), false) == is_end.end();
}

}  // namespace

std::string_view finish_name(FinishReason reason) {
  constexpr std::string_view kNames[] = {"none", "stop", "length", "error", "cancelled"};
  return kNames[static_cast<std::size_t>(reason)];
}

void validate(const Request& request, std::int64_t vocab, std::int64_t context) {
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  require(prompt > 0, "empty prompt", "at least one token");
  const std::int64_t longest = request.max_new_tokens > 0 ? context - 1 : context;
  require(prompt <= longest, fmt::format("prompt of {} tokens", prompt),
          fmt::format("at most {} of a context of {} tokens", longest, context));
  require(request.max_new_tokens >= 0, fmt::format("max_new_tokens {}", request.max_new_tokens), "0 or more");
  require(request.min_new_tokens >= 0 && request.min_new_tokens <= request.max_new_tokens,
          fmt::format("min_new_tokens {}", request.min_new_tokens),
          fmt::format("0 to max_new_tokens {}", request.max_new_tokens));
  require(request.min_new_tokens == 0 || !ends_are_all(request, vocab),
          fmt::format("min_new_tokens {} where every token ends the answer", request.min_new_tokens), "0");
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    if (request.prompt[i] >= 0 && request.prompt[i] < vocab) continue;
    fail(ErrorCode::usage, fmt::format("token id {} at position {} of the prompt", request.prompt[i], i),
         fmt::format("0 to {}", vocab - 1));
  }
  validate_top(request.top_logprobs, "top_logprobs");
  validate_top(request.prompt_top_logprobs, "prompt_top_logprobs");
  require(request.prompt_logprobs || request.prompt_top_logprobs == 0, "prompt_top_logprobs without prompt_logprobs",
          "both");
  validate(request.sampling, vocab);
}

}  // namespace sluice::engine
