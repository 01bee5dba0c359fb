// Character classes and escapes of Oniguruma patterns, rewritten for PCRE2. Part of regex_syntax.h, which alone uses
// it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/function_ref.h"

namespace sluice::text {

// A position in a pattern, with the errors that name it.
struct PatternReader {
  std::string_view pattern;
  const std::string& where;
  FunctionRef<bool(std::string_view)> script_name;
  std::size_t position = 0;  // bytes
  int class_depth = 0;
  bool caseless = false;  // inside (?i): letters match both cases

  bool done() const { return position >= pattern.size(); }
  std::string_view rest() const { return pattern.substr(position); }
  char peek() const { return pattern[position]; }
  char next() { return pattern[position++]; }
  char32_t next_char();
  bool starts_with(std::string_view text) const { return rest().substr(0, text.size()) == text; }
  bool take(std::string_view text);
  // Takes "{n}", "{n,}", "{n,m}" or "{,m}" and gives the bounds in the form "n,m"; leaves anything else alone.
  bool take_interval(std::string& bounds);

  [[noreturn]] void malformed(const std::string& why) const;
  [[noreturn]] void unsupported(const std::string& what) const;
};

// Refuses a character that, inside (?i), may match several (as "ss" and U+00DF do) in one dialect only. `previous` is
// the literal before it, or 0.
void check_caseless(const PatternReader& in, char32_t previous, char32_t c);

// One character, quoted so that it stands for itself inside and outside of a class.
std::string quote_char(char32_t c);

// A bracket expression, with nested classes and intersections. The result matches one character.
std::string translate_class(PatternReader& in);

// \s \S \w \W \d \D \h \H \p{..} \P{..}, as an expression that matches one character. False when none stands here.
bool take_class_escape(PatternReader& in, std::string& set);

// Any other escape that stands for one character, e.g. \n, \x{2581}, \[.
char32_t take_char_escape(PatternReader& in);

// The items of the class \w, without brackets.
std::string word_items();

}  // namespace sluice::text
