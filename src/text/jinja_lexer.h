// Splits a template into text and the tokens inside its tags.
//
// White space follows the settings that transformers uses: trim_blocks (the line break after a block tag is dropped)
// and lstrip_blocks (spaces before a block tag that starts its line are dropped), "-" and "+" marks, one line break at
// the end of the template dropped, line breaks as "\n". Called by the parser; pure function, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text::jinja {

enum class TokenType {
  text,         // between tags; `text` is what is printed
  block_begin,  // {%
  block_end,    // %}
  print_begin,  // {{
  print_end,    // }}
  name,
  string,
  integer,
  real,
  sign,  // an operator or punctuation, spelled in `text`
  end,   // after the last token
};

struct Token {
  TokenType type = TokenType::end;
  int line = 1;
  std::string text;  // for strings the value, escapes resolved
  std::int64_t integer = 0;
  double real = 0;

  bool is_sign(std::string_view spelling) const { return type == TokenType::sign && text == spelling; }
  bool is_name(std::string_view name) const { return type == TokenType::name && text == name; }
};

// Always ends with a token of type `end`. Throws Error(bad_input) that names `origin` and the line.
std::vector<Token> tokenize(std::string_view source, std::string_view origin);

// What a token is called in messages.
std::string describe(const Token& token);

// Throws Error(bad_input) "<origin> line <line>: <what>; <hint>".
[[noreturn]] void fail_at(std::string_view origin, int line, const std::string& what, const std::string& hint = "");

// The value of a quoted literal without its quotes: \n, \x41, \u00e9 and so on resolved as Python does.
std::string unescape(std::string_view literal, std::string_view origin, int line);

}  // namespace sluice::text::jinja
