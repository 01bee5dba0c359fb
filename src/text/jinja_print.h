// Values as text: Python's str() and repr(), JSON as json.dumps writes it, and numbers read back from text.
//
// Used for output, string operators and filters. Charges the context while it writes, so that values that share parts
// cannot blow up.
#pragma once

#include <optional>
#include <string>

#include "core/json.h"
#include "text/jinja_value.h"

namespace sluice::text::jinja {

std::string to_str(Context& context, const Value& value);
std::string to_repr(Context& context, const Value& value);
// Shortest decimal that reads back as the same double, in Python's spelling ("1.0", "1e+16", "inf").
std::string float_repr(double value);
// The value as text: itself when it is text already, keeping the safe mark, else a new text of its str().
Value as_text(Context& context, const Value& value);

// int(text, base) and float(text) of Python; nullopt where Python raises ValueError. Fails beyond 64 bits.
std::optional<std::int64_t> parse_int(Context& context, std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

struct JsonStyle {
  std::optional<std::string> indent;  // one level of indentation; line breaks are written only when set
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};
// json.dumps. Fails for values that have no JSON form (undefined, macros, dict views).
std::string to_json(Context& context, const Value& value, const JsonStyle& style);

Value from_json(Context& context, const Json& json);

// "&", "<", ">" and both quotes as HTML entities.
std::string escape_html(std::string_view text);

}  // namespace sluice::text::jinja
