// Log-probabilities in the forms of the three protocols. Pure functions of tokens and the tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/job.h"
#include "text/tokenizer.h"

namespace sluice::server {

// What a token adds to a text, as valid UTF-8: half a character becomes U+FFFD.
std::string readable_token(const text::Tokenizer& tokenizer, std::int32_t token);

// {"token", "bytes", "logprob", "top_logprobs": [...]}, as chat completions have it.
void append_chat_logprob(std::string& out, const text::Tokenizer& tokenizer, const TokenNote& note);

// How many characters of a text there are so far. Tokens end in the middle of characters; the next one begins at the
// same character then.
class TextPlace {
 public:
  // At which character these bytes begin.
  std::int64_t add(std::string_view bytes);

 private:
  std::int64_t characters_ = 0;  // complete ones, each broken part counting as one
  std::string begun_;            // bytes of one that is not complete
};

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, as completions have it. The first note of an echoed
// prompt has no log-probability. `place` is where the notes begin, and is moved to their end.
struct CompletionLogprobs {
  std::vector<TokenNote> notes;
  bool first_unknown = false;
  bool with_top = false;
};
void append_completion_logprobs(std::string& out, const text::Tokenizer& tokenizer, const CompletionLogprobs& part,
                                TextPlace& place);

// [logprob, id, null], as /generate has it; null in front for a token without one. With `tokenizer` the token's text
// stands at the end.
void append_generate_logprob(std::string& out, std::optional<float> logprob, std::int32_t token,
                             const text::Tokenizer* tokenizer);
// A list of such lists.
void append_generate_top(std::string& out, const std::vector<engine::TokenLogprob>& top,
                         const text::Tokenizer* tokenizer);

}  // namespace sluice::server
