// UTF-8 and the few Unicode facts that tokenisation needs.
//
// Called by the tokeniser, the stream decoder and the chat template. Pure functions, thread-safe. "Lossy" follows the
// Unicode recommendation that Rust's from_utf8_lossy implements: one U+FFFD for each maximal prefix of a character that
// cannot be completed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// What stands at the front of some bytes: a whole character, a broken one, or one that the bytes end in.
struct Utf8Step {
  enum class Kind : std::uint8_t { character, broken, incomplete };
  Kind kind;
  int bytes;  // length of the character or of the part that one U+FFFD replaces, at least 1
};
Utf8Step utf8_step(std::string_view bytes);  // `bytes` must not be empty

bool valid_utf8(std::string_view bytes);
std::string lossy_utf8(std::string_view bytes);

struct CodePoint {
  char32_t value;
  int bytes;
};
CodePoint decode_utf8(std::string_view valid);       // first character of valid, non-empty UTF-8
CodePoint decode_last_utf8(std::string_view valid);  // its last character
void append_utf8(std::string& out, char32_t value);  // surrogates and values past U+10FFFF become U+FFFD

bool is_whitespace(char32_t c);   // property White_Space
bool is_numeric(char32_t c);      // categories Nd, Nl, No
bool is_punctuation(char32_t c);  // categories P*, and ASCII symbols
bool is_word(char32_t c);         // \w of UTS 18: Alphabetic, M, Nd, Pc, Join_Control

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };
std::string normalize_utf8(std::string_view valid, NormalForm form);

// Each character by itself (no final sigma); U+0130 becomes two characters, as Unicode's full mapping says.
std::string lowercase_utf8(std::string_view valid);

// Lossy decoding of bytes that arrive in parts: the concatenation of all output equals lossy_utf8 of all input.
// Not thread-safe.
class Utf8Stream {
 public:
  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);  // an incomplete tail becomes U+FFFD

 private:
  std::string pending_;  // an incomplete character, at most 3 bytes
};

}  // namespace sluice::text
