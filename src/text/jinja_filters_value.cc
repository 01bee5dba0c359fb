#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja_context.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_tables.h"

// Filters on single values: defaults, numbers, JSON.
namespace sluice::text::jinja {
namespace {

constexpr double kInt64Limit = 9223372036854775808.0;

Value default_value(Context& context, const Value& input, const Bound& args) {
  const bool replace = input.is_undefined() || (args.truth(1, false) && !input.truth());
  if (!replace) return input;
  return args.has(0) ? args.at(0) : context.make_text("");
}

// int() of a double; nullopt where Python raises ValueError or OverflowError.
std::optional<Value> truncated(Context& context, double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (value >= kInt64Limit || value < -kInt64Limit) context.fail("a number does not fit in 64 bits");
  return Value(static_cast<std::int64_t>(value));
}

Value to_int(Context& context, const Value& input, const Bound& args) {
  Value otherwise = args.get(0, Value(std::int64_t{0}));
  if (input.is_undefined()) context.fail_undefined(input);
  if (input.is_integral()) return Value(input.integer());
  if (input.is_float()) {
    if (std::isinf(input.real())) context.fail("filter 'int': infinity has no integer value");
    return truncated(context, input.real()).value_or(otherwise);
  }
  if (!input.is_text()) return otherwise;
  const std::int64_t base = std::clamp<std::int64_t>(args.integer(1, 10), -1, 99);
  if (const auto value = parse_int(context, input.bytes(), static_cast<int>(base))) return Value(*value);
  const auto real = parse_float(input.bytes());
  return real ? truncated(context, *real).value_or(otherwise) : otherwise;
}

Value to_float(Context& context, const Value& input, const Bound& args) {
  Value otherwise = args.get(0, Value(0.0));
  if (input.is_undefined()) context.fail_undefined(input);
  if (input.is_number()) return Value(input.real());
  if (!input.is_text()) return otherwise;
  const auto value = parse_float(input.bytes());
  return value ? Value(*value) : otherwise;
}

// round(value, digits) of Python: half to even on the exact binary value.
Value round_half_even(Context& context, const Value& value, std::int64_t digits) {
  if (value.is_integral()) {
    if (digits >= 0) return Value(value.integer());
    if (digits < -18) return Value(std::int64_t{0});
    std::int64_t unit = 1;
    for (std::int64_t i = digits; i < 0; ++i) unit *= 10;
    const std::int64_t rest = ((value.integer() % unit) + unit) % unit;
    const std::int64_t below = value.integer() - rest;
    const bool up = rest > unit - rest || (rest == unit - rest && (below / unit) % 2 != 0);
    return up ? apply(context, BinaryOp::add, Value(below), Value(unit)) : Value(below);
  }
  const double x = value.real();
  if (!std::isfinite(x) || digits > 400) return value;
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::isfinite(unit) ? Value(std::nearbyint(x / unit) * unit) : Value(std::copysign(0.0, x));
  }
  char buffer[800];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::fixed, static_cast<int>(digits)).ptr;
  double rounded = x;
  std::from_chars(buffer, end, rounded);
  return Value(rounded);
}

Value round(Context& context, const Value& input, const Bound& args) {
  const std::int64_t digits = args.integer(0, 0);
  const std::string method = args.has(1) ? args.text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    context.fail("filter 'round': the method is common, ceil or floor");
  }
  if (input.is_undefined()) context.fail_undefined(input);
  if (!input.is_number()) context.fail("filter 'round' takes a number, not " + input.type_name());
  if (method == "common") return round_half_even(context, input, digits);
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = input.real() * unit;
  if (!std::isfinite(scaled) || unit == 0.0) context.fail("filter 'round': the number is too large");
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return Value((whole == 0.0 ? 0.0 : whole) / unit);  // Python's ceil gives an int, which has no negative zero
}

Value absolute(Context& context, const Value& input, const Bound&) {
  if (input.is_undefined()) context.fail_undefined(input);
  if (input.is_float()) return Value(std::fabs(input.real()));
  if (!input.is_integral()) context.fail("filter 'abs' takes a number, not " + input.type_name());
  return input.integer() < 0 ? negate(context, input) : Value(input.integer());
}

std::optional<std::string> indentation(Context& context, const Bound& args) {
  if (!args.given(1)) return std::nullopt;
  if (args.at(1).is_text()) return args.text(1);
  const std::int64_t width = std::max<std::int64_t>(args.integer(1, 0), 0);
  context.charge_bytes(static_cast<std::uint64_t>(width));
  return std::string(static_cast<std::size_t>(width), ' ');
}

// json.dumps as transformers calls it: not escaped for HTML, and characters outside ASCII stay as they are.
Value tojson(Context& context, const Value& input, const Bound& args) {
  JsonStyle style;
  style.ensure_ascii = args.truth(0, false);
  style.indent = indentation(context, args);
  if (style.indent) style.item_separator = ",";
  if (args.given(2)) {
    const Value& pair = args.at(2);
    const bool valid = pair.is_sequence() && pair.sequence().items.size() == 2 && pair.sequence().items[0].is_text() &&
                       pair.sequence().items[1].is_text();
    if (!valid) context.fail("filter 'tojson': separators must be two strings");
    style.item_separator = pair.sequence().items[0].bytes();
    style.key_separator = pair.sequence().items[1].bytes();
  }
  style.sort_keys = args.truth(3, false);
  return context.make_text(to_json(context, input, style));
}

Value attr(Context& context, const Value& input, const Bound& args) {
  const std::string& name = args.text(0);
  if (auto found = find_attribute(context, input, name)) return *std::move(found);
  return Value::undefined("a value of type " + input.type_name() + " has no attribute '" + name + "'");
}

constexpr Filter kFilters[] = {
    {"default", "default_value? boolean?", default_value},
    {"d", "default_value? boolean?", default_value},
    {"int", "default? base?", to_int},
    {"float", "default?", to_float},
    {"round", "precision? method?", round},
    {"abs", "", absolute},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", tojson},
    {"attr", "name", attr},
};

}  // namespace

std::span<const Filter> value_filters() { return kFilters; }

}  // namespace sluice::text::jinja
