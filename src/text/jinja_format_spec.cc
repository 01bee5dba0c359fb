#include <charconv>
#include <cmath>

#include "text/jinja_context.h"
#include "text/jinja_format.h"
#include "text/jinja_print.h"
#include "text/jinja_split.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {
namespace {

constexpr std::int64_t kMaxPrecision = 1000;

// Sign, prefix and digits of a number; padding with '=' goes between the prefix and the digits.
struct Parts {
  std::string sign;
  std::string prefix;
  std::string digits;
};

std::string sign_text(bool negative, char mode) {
  if (negative) return "-";
  return mode == '-' ? "" : std::string(1, mode);
}

std::string upper_ascii(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 0x20 : c);
  return text;
}

// Separators between groups of the digits before the first character that is not a digit.
std::string group(const std::string& digits, char separator, std::size_t group_size) {
  if (separator == 0) return digits;
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % group_size == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

Parts integer_parts(std::int64_t value, const FormatSpec& spec) {
  const int base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : (spec.type | 0x20) == 'x' ? 16 : 10;
  const auto magnitude = value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  char buffer[72];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, magnitude, base).ptr;
  Parts parts;
  parts.sign = sign_text(value < 0, spec.sign);
  parts.digits.assign(buffer, end);
  if (spec.type == 'X') parts.digits = upper_ascii(parts.digits);
  parts.digits = group(parts.digits, spec.grouping, base == 10 ? 3 : 4);
  if (spec.alternate && base != 10) parts.prefix = std::string("0") + spec.type;
  return parts;
}

std::string to_chars_text(double value, std::chars_format format, int precision) {
  std::string buffer(static_cast<std::size_t>(precision) + 400, '\0');
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, precision).ptr;
  buffer.resize(static_cast<std::size_t>(end - buffer.data()));
  return buffer;
}

std::string real_digits(double magnitude, const FormatSpec& spec, int precision) {
  switch (spec.type | 0x20) {
    case 'e':
      return to_chars_text(magnitude, std::chars_format::scientific, precision);
    case 'f':
      return to_chars_text(magnitude, std::chars_format::fixed, precision);
    case '%' | 0x20:
      return to_chars_text(magnitude * 100, std::chars_format::fixed, precision) + "%";
    default:
      break;
  }
  if (spec.type == 0 && !spec.precision) return float_repr(magnitude);
  std::string text = to_chars_text(magnitude, std::chars_format::general, precision == 0 ? 1 : precision);
  if (spec.type == 0 && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

Parts real_parts(Context& context, double value, const FormatSpec& spec) {
  const std::int64_t precision = spec.precision.value_or(6);
  if (precision > kMaxPrecision)
    context.fail("a precision above " + std::to_string(kMaxPrecision) + " is not supported");
  Parts parts;
  parts.sign = sign_text(std::signbit(value) && !std::isnan(value), spec.sign);
  const double magnitude = std::fabs(value);
  if (!std::isfinite(value)) {
    parts.digits = std::isnan(value) ? "nan" : "inf";
    if (spec.type == '%') parts.digits += '%';
  } else {
    parts.digits = group(real_digits(magnitude, spec, static_cast<int>(precision)), spec.grouping, 3);
  }
  if (spec.type == 'E' || spec.type == 'F' || spec.type == 'G') parts.digits = upper_ascii(parts.digits);
  return parts;
}

std::string aligned(Context& context, std::string bytes, const FormatSpec& spec, char align) {
  Text text;
  text.code_points = count_code_points(bytes);
  text.bytes = std::move(bytes);
  const Align where = align == '<' ? Align::left : align == '^' ? Align::center : Align::right;
  // Unlike str.center, format puts the odd fill character to the right.
  if (where == Align::center) {
    const auto length = static_cast<std::int64_t>(text.code_points);
    if (spec.width <= length) return text.bytes;
    text.bytes = pad(context, text, length + (spec.width - length) / 2, spec.fill, Align::right);
    text.code_points = static_cast<std::size_t>(length + (spec.width - length) / 2);
    return pad(context, text, spec.width, spec.fill, Align::left);
  }
  return pad(context, text, spec.width, spec.fill, where);
}

}  // namespace

std::string format_number(Context& context, const Value& number, const FormatSpec& spec) {
  const bool wants_integer = spec.type != 0 && std::string_view("dixXob").find(spec.type) != std::string_view::npos;
  if (wants_integer && !number.is_integral()) {
    context.fail(std::string("format '") + spec.type + "' takes an integer, not " + number.type_name());
  }
  const bool as_integer = wants_integer || (spec.type == 0 && number.is_integral());
  if (as_integer && spec.precision) context.fail("an integer cannot be formatted with a precision");
  const Parts parts = as_integer ? integer_parts(number.integer(), spec) : real_parts(context, number.real(), spec);
  const std::string head = parts.sign + parts.prefix;
  if (spec.align != '=') return aligned(context, head + parts.digits, spec, spec.align == 0 ? '>' : spec.align);
  Text digits;
  digits.code_points = parts.digits.size();
  digits.bytes = parts.digits;
  const auto head_size = static_cast<std::int64_t>(head.size());
  return head + pad(context, digits, std::max<std::int64_t>(spec.width - head_size, 0), spec.fill, Align::right);
}

std::string format_text(Context& context, const std::string& bytes, const FormatSpec& spec) {
  std::string shown = bytes;
  if (spec.precision) shown.resize(offset_of(bytes, static_cast<std::size_t>(*spec.precision)));
  return aligned(context, std::move(shown), spec, spec.align == 0 ? '<' : spec.align);
}

}  // namespace sluice::text::jinja
