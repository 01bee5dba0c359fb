#include <optional>

#include "text/jinja_lexer.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {
namespace {

// Characters whose escape is one letter, and what they stand for.
constexpr std::string_view kLetters = "\\'\"abfnrtv";
constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";

int digit_of(char c, int base) {
  int value = 99;
  if (c >= '0' && c <= '9') value = c - '0';
  if (c >= 'a' && c <= 'f') value = c - 'a' + 10;
  if (c >= 'A' && c <= 'F') value = c - 'A' + 10;
  return value < base ? value : -1;
}

class Unescaper {
 public:
  Unescaper(std::string_view text, std::string_view origin, int line) : text_(text), origin_(origin), line_(line) {}

  std::string run() {
    std::string out;
    while (at_ < text_.size()) {
      if (text_[at_] != '\\') {
        out += text_[at_++];
      } else {
        ++at_;
        escape(out);
      }
    }
    return out;
  }

 private:
  void escape(std::string& out) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    const std::size_t letter = kLetters.find(c);
    if (letter != std::string_view::npos) {
      out += kMeanings[letter];
      ++at_;
    } else if (c == '\n') {
      ++at_;  // a line continuation
    } else if (digit_of(c, 8) >= 0) {
      append(out, number(at_, 3, 8, false));
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append(out, number(at_ + 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, true));
    } else if (c == 'N') {
      fail_at(origin_, line_, "character names (\\N{...}) in strings are not supported", "write \\uXXXX instead");
    } else {
      out += '\\';  // Python keeps the backslash of an unknown escape
    }
  }

  // Up to `digits` digits from `from`, all of them when `exact`; moves behind them.
  char32_t number(std::size_t from, int digits, int base, bool exact) {
    char32_t value = 0;
    int count = 0;
    for (at_ = from; count < digits && at_ < text_.size(); ++count, ++at_) {
      const int digit = digit_of(text_[at_], base);
      if (digit < 0) break;
      value = value * static_cast<char32_t>(base) + static_cast<char32_t>(digit);
    }
    if (exact && count < digits) fail_at(origin_, line_, "a \\x or \\u escape in a string has too few digits");
    return value;
  }

  void append(std::string& out, char32_t c) const {
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) {
      fail_at(origin_, line_, "an escape in a string is not a Unicode character");
    }
    append_utf8(out, c);
  }

  std::string_view text_;
  std::string_view origin_;
  int line_;
  std::size_t at_ = 0;
};

}  // namespace

std::string unescape(std::string_view literal, std::string_view origin, int line) {
  return Unescaper(literal, origin, line).run();
}

}  // namespace sluice::text::jinja
