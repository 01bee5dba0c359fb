// The 256 printable characters that byte-level vocabularies use in the place of bytes.
//
// Printable Latin-1 characters stand for themselves; the other 68 bytes become U+0100 and up, in ascending order.
// Pure functions, thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::text {

char32_t byte_to_alphabet(unsigned char byte);

// Every byte as its character, in UTF-8.
std::string to_byte_alphabet(std::string_view bytes);

// The bytes that a token stands for, or nothing when it has a character outside the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view valid_utf8);

}  // namespace sluice::text
