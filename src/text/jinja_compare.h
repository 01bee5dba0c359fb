// Equality, order and membership with Python's rules.
//
// Used by operators, tests and the filters that sort or search. Every function charges the context for what it looks
// at, because values may share parts and so be far larger than their memory.
#pragma once

#include "text/jinja_value.h"

namespace sluice::text::jinja {

// Python's ==. Never fails; values of unrelated types differ.
bool equal(Context& context, const Value& a, const Value& b);
// Python's <, between numbers, texts, lists or tuples. Fails for anything else.
bool less(Context& context, const Value& a, const Value& b);
// Python's `item in container`: substring, element or key. Fails when `container` holds nothing.
bool contains(Context& context, const Value& container, const Value& item);
// Whether the value may be the key of a dict.
bool is_hashable(Context& context, const Value& value);
// First position of `needle` at or after byte `from`, or npos. Linear time.
std::size_t find_bytes(std::string_view text, std::string_view needle, std::size_t from = 0);
// Last position of `needle` that ends at or before byte `end`, or npos. Charges the context for the work.
std::size_t rfind_bytes(Context& context, std::string_view text, std::string_view needle, std::size_t end);

}  // namespace sluice::text::jinja
