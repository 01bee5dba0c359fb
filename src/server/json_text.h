// Pieces of JSON written straight into a string: for what is written once a token, where a document tree would cost
// more than the token's share of everything else. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace sluice::server {

// A JSON string. `text` is UTF-8, as the tokenizer's decoder makes it.
void append_quoted(std::string& out, std::string_view text);
std::string json_quoted(std::string_view text);

// A number; what JSON has no number for becomes one that clients can read: -9999 for a log-probability of zero.
void append_logprob(std::string& out, float value);

}  // namespace sluice::server
