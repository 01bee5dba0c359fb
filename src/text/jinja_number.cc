#include <charconv>
#include <limits>

#include "text/jinja_context.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Removes "_" where Python allows it: single, between two digits. nullopt where it does not.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || digit_value(text[i - 1]) == 99 || digit_value(text[i + 1]) == 99) {
      return std::nullopt;
    }
  }
  return out;
}

// Base of a "0b", "0o" or "0x" prefix, or 0.
int prefix_base(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  const char mark = static_cast<char>(text[1] | 0x20);
  return mark == 'b' ? 2 : mark == 'o' ? 8 : mark == 'x' ? 16 : 0;
}

bool consume(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

std::optional<std::int64_t> parse_int(Context& context, std::string_view text, int base) {
  if (base != 0 && (base < 2 || base > 36)) context.fail("the base of an integer is 0 or 2 to 36");
  text = strip(text, Side::both);
  const bool negative = consume(text, "-");
  if (!negative) consume(text, "+");
  const int prefix = prefix_base(text);
  if (prefix != 0 && (base == 0 || base == prefix)) {
    text.remove_prefix(2);
    consume(text, "_");
    base = prefix;
  } else if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      return std::nullopt;
  }
  const auto digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  for (const char c : *digits) {
    if (digit_value(c) >= base) return std::nullopt;
  }
  std::int64_t value = 0;
  const std::string signed_digits = (negative ? "-" : "") + *digits;
  const auto result = std::from_chars(signed_digits.data(), signed_digits.data() + signed_digits.size(), value, base);
  if (result.ec != std::errc()) context.fail("integer " + signed_digits.substr(0, 40) + " does not fit in 64 bits");
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  text = strip(text, Side::both);
  const bool negative = consume(text, "-");
  if (!negative) consume(text, "+");
  const double sign = negative ? -1.0 : 1.0;
  std::string lower;
  for (const char c : text) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  if (lower == "inf" || lower == "infinity") return sign * std::numeric_limits<double>::infinity();
  if (lower == "nan") return std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 0; i < lower.size(); ++i) {
    if (lower[i] == '_' && (i == 0 || i + 1 == lower.size() || !is_digit(lower[i - 1]) || !is_digit(lower[i + 1]))) {
      return std::nullopt;
    }
  }
  std::erase(lower, '_');
  if (lower.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
  if (lower.empty() || lower[0] == '+' || lower[0] == '-') return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(lower.data(), lower.data() + lower.size(), value);
  if (error == std::errc::result_out_of_range) {
    const bool tiny = lower.find("e-") != std::string::npos || lower[0] == '.' || lower.substr(0, 2) == "0.";
    return tiny ? sign * 0.0 : sign * std::numeric_limits<double>::infinity();
  }
  if (error != std::errc() || end != lower.data() + lower.size()) return std::nullopt;
  return sign * value;
}

}  // namespace sluice::text::jinja
