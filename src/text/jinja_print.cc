#include "text/jinja_print.h"

#include <charconv>
#include <cmath>

#include "text/jinja_context.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

void append_hex(std::string& out, char32_t c, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHexDigits[(c >> shift) & 0xF];
}

void append_escaped(std::string& out, char32_t c) {
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\r') {
    out += "\\r";
  } else if (c == '\t') {
    out += "\\t";
  } else if (c <= 0xFF) {
    out += "\\x";
    append_hex(out, c, 2);
  } else if (c <= 0xFFFF) {
    out += "\\u";
    append_hex(out, c, 4);
  } else {
    out += "\\U";
    append_hex(out, c, 8);
  }
}

std::string text_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = decode_next(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (is_printable(c)) {
      append_utf8(out, c);
    } else {
      append_escaped(out, c);
    }
  }
  return out + quote;
}

// Writes repr() of nested values into one string.
class Repr {
 public:
  Repr(Context& context, std::string& out) : context_(context), out_(out) {}

  void write(const Value& v) {
    const std::size_t before = out_.size();
    context_.step();
    if (v.is_sequence()) {
      write_sequence(v.sequence());
    } else if (v.is_dict()) {
      write_dict(v.dict());
    } else if (v.is_text()) {
      out_ += v.text().is_markup ? "Markup(" + text_repr(v.bytes()) + ")" : text_repr(v.bytes());
    } else {
      out_ += v.is_undefined() ? "Undefined" : to_str(context_, v);
    }
    context_.charge_bytes(v.depth() > 0 ? 1 : out_.size() - before);
  }

 private:
  void write_sequence(const Sequence& s) {
    static constexpr const char* kOpen[] = {"[", "(", "range(", "dict_keys([", "dict_values([", "dict_items(["};
    static constexpr const char* kClose[] = {"]", ")", ")", "])", "])", "])"};
    out_ += kOpen[static_cast<int>(s.kind)];
    if (s.kind == SequenceKind::range) {
      out_ += std::to_string(s.start) + ", " + std::to_string(s.stop);
      if (s.stride != 1) out_ += ", " + std::to_string(s.stride);
    } else {
      const char* separator = "";
      for (const Value& item : s.items) {
        out_ += separator;
        write(item);
        separator = ", ";
      }
      if (s.kind == SequenceKind::tuple && s.items.size() == 1) out_ += ',';
    }
    out_ += kClose[static_cast<int>(s.kind)];
  }

  void write_dict(const Dict& d) {
    const char* separator = "{";
    for (const auto& [key, value] : d.entries) {
      out_ += separator;
      write(key);
      out_ += ": ";
      write(value);
      separator = ", ";
    }
    out_ += d.entries.empty() ? "{}" : "}";
  }

  Context& context_;
  std::string& out_;
};

// Digits and decimal exponent of the shortest form: value = 0.d1d2d3... x 10^exponent.
struct Decimal {
  std::string digits;
  int exponent = 0;
};

Decimal shortest_decimal(double magnitude) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, magnitude, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = text.find('e');
  Decimal out;
  for (const char c : text.substr(0, e)) {
    if (c != '.') out.digits += c;
  }
  const char* first = text.data() + e + 1 + (text[e + 1] == '+' ? 1 : 0);
  std::from_chars(first, end, out.exponent);
  ++out.exponent;
  return out;
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  const std::string sign = std::signbit(value) ? "-" : "";
  if (std::isinf(value)) return sign + "inf";
  const Decimal d = shortest_decimal(std::fabs(value));
  const int digits = static_cast<int>(d.digits.size());
  if (d.exponent > 16 || d.exponent < -3) {
    const int shown = std::abs(d.exponent - 1);
    std::string mantissa = d.digits.substr(0, 1);
    if (digits > 1) mantissa += "." + d.digits.substr(1);
    return sign + mantissa + (d.exponent > 0 ? "e+" : "e-") + (shown < 10 ? "0" : "") + std::to_string(shown);
  }
  if (d.exponent <= 0) return sign + "0." + std::string(static_cast<std::size_t>(-d.exponent), '0') + d.digits;
  const auto whole = static_cast<std::size_t>(d.exponent);
  if (digits <= d.exponent) return sign + d.digits + std::string(whole - d.digits.size(), '0') + ".0";
  return sign + d.digits.substr(0, whole) + "." + d.digits.substr(whole);
}

std::string to_str(Context& context, const Value& value) {
  if (value.is_text()) return value.bytes();
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.integer() != 0 ? "True" : "False";
  if (value.is_int()) return std::to_string(value.integer());
  if (value.is_float()) return float_repr(value.real());
  if (value.is_object()) return value.object().text(context);
  return to_repr(context, value);
}

std::string to_repr(Context& context, const Value& value) {
  const Context::Level level(context);
  std::string out;
  Repr(context, out).write(value);
  return out;
}

Value as_text(Context& context, const Value& value) {
  return value.is_text() ? value : context.make_text(to_str(context, value));
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace sluice::text::jinja
