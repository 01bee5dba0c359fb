// Turns the tokens of one answer into text while they arrive. Never gives half a character.
//
// One for each sequence being generated; not thread-safe; must not outlive its Tokenizer, which must not be moved
// meanwhile. The concatenation of all results equals Tokenizer::decode of all ids.
#pragma once

#include <cstdint>
#include <string>

#include "text/decoder.h"

namespace sluice::text {

class Tokenizer;

class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special);

  // Text that is certain now, possibly empty: the bytes of an unfinished character wait for the rest.
  std::string push(std::int32_t id);

  // What is left after the last token; an unfinished character becomes U+FFFD. To be called once.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  DecoderRun run_;
};

}  // namespace sluice::text
