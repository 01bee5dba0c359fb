// Arithmetic, and access to attributes, elements and slices, with Python's and Jinja's rules.
//
// Used by the evaluator and by filters. All functions fail through the context, which knows the line.
#pragma once

#include "text/jinja_value.h"

namespace sluice::text::jinja {

enum class BinaryOp { add, subtract, multiply, divide, floor_divide, modulo, power };

Value apply(Context& context, BinaryOp op, const Value& a, const Value& b);
Value negate(Context& context, const Value& v);
Value unary_plus(Context& context, const Value& v);

// `object.name`: an attribute or method, else the element of that name; undefined when there is neither.
Value get_attribute(Context& context, const Value& object, std::string_view name);
// The attribute or method alone; nullopt when there is none.
std::optional<Value> find_attribute(Context& context, const Value& object, std::string_view name);
// `object[key]`: an element, else for a text key the attribute of that name; undefined when there is neither.
Value get_item(Context& context, const Value& object, const Value& key);
// `object[start:stop:stride]`, None where a part is left out.
Value get_slice(Context& context, const Value& object, const Value& start, const Value& stop, const Value& stride);

}  // namespace sluice::text::jinja
