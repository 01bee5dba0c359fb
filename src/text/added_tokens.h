// The "added_tokens" of tokenizer.json: strings that are found in the text before anything is cut, and become one
// token.
//
// Owned by Tokenizer. Immutable and thread-safe. Matching is leftmost-longest, as in the `tokenizers` package.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/normalizer.h"
#include "text/prefix_tree.h"
#include "text/vocabulary.h"

namespace sluice::text {

struct AddedToken {
  std::int32_t id = -1;
  std::string content;
  std::string normalized_content;  // what is looked for in normalised text, and decoded
  bool single_word = false;        // does not match next to a word character
  bool lstrip = false;             // takes the white space before it
  bool rstrip = false;             // takes the white space behind it
  bool normalized = false;         // is looked for after normalisation
  bool special = false;
  bool skipped = false;  // left out when special tokens are not wanted in a decoded text
};

class AddedTokens {
 public:
  // A part of a text: a token, or ordinary text when id is -1.
  struct Part {
    std::size_t begin = 0;  // bytes
    std::size_t end = 0;
    std::int32_t id = -1;
  };

  AddedTokens() = default;
  // Reads the list and enters new tokens into the vocabulary. An entry whose id contradicts the vocabulary throws
  // Error(bad_input), as does one whose id another token has.
  AddedTokens(const Json& list, const std::string& where, const Normalizer& normalizer, Vocabulary& vocabulary);

  // Cuts raw text at the tokens that are looked for before normalisation, or normalised text at the others.
  // Without `parse_special` special tokens in the text are ordinary text.
  std::vector<Part> split(std::string_view text, bool normalized_text, bool parse_special) const;

  bool any(bool normalized_text) const { return !(normalized_text ? normalized_ : raw_).empty(); }

  // The token with this id, or nullptr.
  const AddedToken* find(std::int64_t id) const;

 private:
  void read(const Json& entry, const std::string& where, Vocabulary& vocabulary);
  void put(AddedToken token);

  std::vector<AddedToken> tokens_;
  std::vector<std::int32_t> index_;  // id -> index in tokens_, or -1
  PrefixTree raw_;                   // values are indices in tokens_
  PrefixTree normalized_;
};

}  // namespace sluice::text
