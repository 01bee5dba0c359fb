// Python's two ways to format: `"%s" % args` and `"{}".format(args)`.
//
// A subset that covers what templates use: conversions s r a c d i u x X o b e E f F g G %, flags, fill, alignment,
// sign, width, precision and thousands separators. Nested fields in a format specification are refused.
#pragma once

#include <optional>
#include <string>

#include "text/jinja_value.h"

namespace sluice::text::jinja {

// `format % args`: a tuple gives several arguments, a dict gives named ones.
Value format_percent(Context& context, const Value& format, const Value& args);
// `format.format(args...)`.
Value format_braces(Context& context, const Value& format, const CallArgs& args);

// How one value is laid out; the common part of both notations.
struct FormatSpec {
  std::string fill = " ";
  char align = 0;   // '<', '>', '^' or '='; 0 is the default of the type
  char sign = '-';  // '-', '+' or ' '
  bool alternate = false;
  char grouping = 0;  // ',' or '_'
  std::int64_t width = 0;
  std::optional<std::int64_t> precision;
  char type = 0;
};

// A number as digits with sign, prefix and grouping, then padded. `spec.type` must be a numeric one, or 0.
std::string format_number(Context& context, const Value& number, const FormatSpec& spec);
// A text, cut to the precision, then padded.
std::string format_text(Context& context, const std::string& bytes, const FormatSpec& spec);

}  // namespace sluice::text::jinja
