// Log-probabilities in the forms of the three protocols. Pure functions of tokens and the tokenizer.
#pragma once

#include <string>
#include <vector>

#include "server/job.h"
#include "text/tokenizer.h"

namespace sluice::server {

// What a token adds to a text, as valid UTF-8: half a character becomes U+FFFD.
std::string readable_token(const text::Tokenizer& tokenizer, std::int32_t token);

// {"token", "bytes", "logprob", "top_logprobs": [...]}, as chat completions have it.
void append_chat_logprob(std::string& out, const text::Tokenizer& tokenizer, const TokenNote& note);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, as completions have it. The first note of an echoed
// prompt has no log-probability. `offset` is the character at which the notes begin; the end is returned.
struct CompletionLogprobs {
  std::vector<TokenNote> notes;
  bool first_unknown = false;
  bool with_top = false;
};
std::int64_t append_completion_logprobs(std::string& out, const text::Tokenizer& tokenizer,
                                        const CompletionLogprobs& part, std::int64_t offset);

// [logprob, id, null], as /generate has it.
void append_generate_logprob(std::string& out, float logprob, std::int32_t token);
// [[logprob, id, null], ...]
void append_generate_top(std::string& out, const std::vector<engine::TokenLogprob>& top);

}  // namespace sluice::server
