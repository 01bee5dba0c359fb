// A tokeniser without a vocabulary to speak of: one token a byte, and what a test adds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"

namespace sluice::text {

inline const std::vector<std::string>& harmony_control_tokens() {
  static const std::vector<std::string> names = {"<|start|>",     "<|end|>",    "<|message|>", "<|channel|>",
                                                 "<|constrain|>", "<|return|>", "<|call|>"};
  return names;
}

// One token a byte, and the control tokens from 256 on.
inline Tokenizer byte_tokenizer(const std::vector<std::string>& control, bool special = true) {
  Json::Object vocab;
  for (int b = 0; b < 256; ++b)
    vocab.emplace_back(to_byte_alphabet(std::string(1, static_cast<char>(b))), Json(std::int64_t{b}));
  Json::Array added;
  for (std::size_t i = 0; i < control.size(); ++i) {
    added.push_back(Json(Json::Object{{"id", Json(static_cast<std::int64_t>(256 + i))},
                                      {"content", Json(control[i])},
                                      {"single_word", Json(false)},
                                      {"lstrip", Json(false)},
                                      {"rstrip", Json(false)},
                                      {"normalized", Json(false)},
                                      {"special", Json(special)}}));
  }
  const Json model(Json::Object{{"type", Json("BPE")}, {"vocab", Json(vocab)}, {"merges", Json(Json::Array{})}});
  const Json level(
      Json::Object{{"type", Json("ByteLevel")}, {"add_prefix_space", Json(false)}, {"use_regex", Json(false)}});
  return Tokenizer::from_json(
      Json(Json::Object{{"model", model}, {"pre_tokenizer", level}, {"decoder", level}, {"added_tokens", Json(added)}}),
      "tokenizer.json", Json(), "tokenizer_config.json");
}

}  // namespace sluice::text
