// The "pre_tokenizer" of tokenizer.json: cuts text into the pieces that BPE works on.
//
// Owned by Tokenizer. Immutable and thread-safe; each call has its own PreTokenizerScratch. Pieces are handed on one at
// a time, without a list in between.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "core/json.h"
#include "text/regex.h"

namespace sluice::text {

struct PreTokenizerScratch {
  RegexScratch regex;
  std::deque<std::string> texts;  // text that steps made; pieces point into it until the caller clears it
};

class PreTokenizer {
 public:
  // A piece of text. `starts_text` says that it begins where the input of the tokeniser began.
  struct Piece {
    std::string_view text;
    bool starts_text = false;
  };
  using Sink = FunctionRef<void(Piece)>;

  struct Step {
    virtual ~Step() = default;
    virtual void apply(Piece piece, PreTokenizerScratch& scratch, Sink sink) const = 0;
  };

  PreTokenizer() = default;
  // Throws Error(unsupported) for a type that is not known, by name.
  PreTokenizer(const Json& json, const std::string& where);

  // Pieces point into `text` or into the scratch.
  void run(Piece text, PreTokenizerScratch& scratch, Sink sink) const;

  // True when the last step maps bytes to the byte alphabet. It is left out then: the pieces are the bytes themselves.
  bool byte_pieces() const { return byte_pieces_; }

 private:
  void read(const Json& json, const std::string& where);

  std::vector<std::unique_ptr<const Step>> steps_;
  bool byte_pieces_ = false;
};

}  // namespace sluice::text
