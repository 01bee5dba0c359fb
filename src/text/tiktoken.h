// Token files of the tiktoken package, which Kimi-K2 comes with: on each line the bytes of a token in base64, a space
// and its rank, which is its id and says when it is merged.
//
// Called by Tokenizer::load. How text is cut into pieces is not in such a file but in code beside it: only the cut of
// Kimi is known here. Pure functions; Error(bad_input) names file and line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace sluice::text {

struct RankedToken {
  std::string bytes;
  std::int32_t rank = 0;
};

std::vector<RankedToken> parse_tiktoken(std::string_view file, const std::string& origin);

// Whether tokenizer_config.json asks for the code that cuts text as kimi_pre_tokenizer() does.
bool is_kimi_tokenizer(const Json& config);

// As in tokenizer.json: a pattern that keeps Chinese characters apart, then bytes.
Json kimi_pre_tokenizer();

// "added_tokens_decoder" of tokenizer_config.json as the "added_tokens" of a tokenizer.json.
Json added_tokens_of(const Json& config, const std::string& origin);

}  // namespace sluice::text
