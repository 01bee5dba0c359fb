// The single steps of a pre-tokeniser. Part of pre_tokenizer.h, which alone uses it.
#pragma once

#include <memory>
#include <string>

#include "text/pre_tokenizer.h"

namespace sluice::text {

// The step of that type; throws Error(unsupported) when there is none. ByteLevel gives its splitting half only.
std::unique_ptr<const PreTokenizer::Step> make_pre_tokenizer_step(const std::string& type, const Json& json,
                                                                  const std::string& where);

// The other half of ByteLevel: bytes become the characters of the byte alphabet.
std::unique_ptr<const PreTokenizer::Step> make_byte_alphabet_step();

}  // namespace sluice::text
