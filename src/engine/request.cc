#include "engine/request.h"

#include <fmt/core.h>

#include <cmath>

#include "core/error.h"

namespace sluice::engine {
namespace {

void require(bool ok, const std::string& what, const char* expected) {
  if (!ok) fail(ErrorCode::usage, what, expected);
}

void validate(const Sampling& s) {
  require(std::isfinite(s.temperature) && s.temperature >= 0.0f, fmt::format("temperature {}", s.temperature),
          "0 or more");
  require(s.top_k >= 0, fmt::format("top_k {}", s.top_k), "0 (all tokens) or more");
  require(s.top_p > 0.0f && s.top_p <= 1.0f, fmt::format("top_p {}", s.top_p), "above 0, at most 1");
  require(s.min_p >= 0.0f && s.min_p <= 1.0f, fmt::format("min_p {}", s.min_p), "0 to 1");
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
          fmt::format("at most {} of a context of {} tokens", longest, context).c_str());
  require(request.max_new_tokens >= 0, fmt::format("max_new_tokens {}", request.max_new_tokens), "0 or more");
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    require(request.prompt[i] >= 0 && request.prompt[i] < vocab,
            fmt::format("token id {} at position {} of the prompt", request.prompt[i], i),
            fmt::format("0 to {}", vocab - 1).c_str());
  }
  validate(request.sampling);
}

}  // namespace sluice::engine
