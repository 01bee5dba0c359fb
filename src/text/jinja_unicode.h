// Code points of UTF-8 text with the meaning Python gives them: white space, case mapping, printable.
//
// For the template engine, whose strings count and slice in code points as Python's do. Everything here expects valid
// UTF-8 (the lexer and the JSON reader refuse anything else), keeps no state and is safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::text::jinja {

// Offset of the first byte that is not valid UTF-8, or npos. Surrogates and overlong forms are invalid.
std::size_t find_invalid_utf8(std::string_view text);
std::size_t count_code_points(std::string_view text);
// Byte offset of code point `index`, at most text.size(). O(offset).
std::size_t offset_of(std::string_view text, std::size_t index);

// Code point that starts at `at`, which is moved past it.
char32_t decode_next(std::string_view text, std::size_t& at);
// Code point that ends before `end`, which is moved to its first byte.
char32_t decode_previous(std::string_view text, std::size_t& end);
void append_utf8(std::string& out, char32_t c);

bool is_space(char32_t c);      // str.isspace of one character, also what strip() and split() take
bool is_printable(char32_t c);  // false for what repr() escapes
bool is_letter(char32_t c);
bool is_decimal(char32_t c);
bool is_name_start(char32_t c);
bool is_name_part(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_titlecase(char32_t c);   // the digraphs such as U+01C5
bool is_line_break(char32_t c);  // where str.splitlines breaks

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string to_title(std::string_view text);
std::string swap_case(std::string_view text);

enum class Side { left, right, both };
// Without the white space at its ends, or without the characters that occur in `chars` when that is not null.
std::string_view strip(std::string_view text, Side side, const std::string_view* chars = nullptr);

}  // namespace sluice::text::jinja
