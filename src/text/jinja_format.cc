#include "text/jinja_format.h"

#include <algorithm>

#include "text/jinja_context.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {
namespace {

constexpr std::int64_t kMaxWidth = 1'000'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// repr() with everything outside ASCII escaped.
std::string ascii_repr(Context& context, const Value& value) {
  const std::string repr = to_repr(context, value);
  std::string out;
  for (std::size_t at = 0; at < repr.size();) {
    const char32_t c = decode_next(repr, at);
    char buffer[12];
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      std::snprintf(buffer, sizeof buffer,
                    c <= 0xFF     ? "\\x%02x"
                    : c <= 0xFFFF ? "\\u%04x"
                                  : "\\U%08x",
                    static_cast<unsigned>(c));
      out += buffer;
    }
  }
  return out;
}

// Reads "12" at `at` and moves past it; nullopt when there is no digit.
std::optional<std::int64_t> read_number(Context& context, std::string_view text, std::size_t& at) {
  if (at >= text.size() || !is_digit(text[at])) return std::nullopt;
  std::int64_t value = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    value = value * 10 + (text[at] - '0');
    if (value > kMaxWidth) context.fail("a width or precision in a format is too large");
  }
  return value;
}

// ---------------------------------------------------------------- percent

class PercentFormatter {
 public:
  PercentFormatter(Context& context, const Value& format, const Value& args)
      : context_(context), format_(format.bytes()), is_markup_(format.text().is_markup), args_(args) {}

  std::string run() {
    std::string out;
    while (at_ < format_.size()) {
      if (format_[at_] != '%') {
        out += format_[at_++];
        continue;
      }
      ++at_;
      out += conversion();
    }
    if (!is_everything_used()) context_.fail("% format: not all arguments are used");
    return out;
  }

 private:
  bool is_everything_used() const {
    if (args_.is_kind(SequenceKind::tuple)) return used_ >= args_.sequence().items.size();
    const bool may_stay_unused = args_.is_dict() || args_.is_sequence() || args_.is_undefined();
    return used_ > 0 || may_stay_unused;
  }

  Value next_argument() {
    const std::size_t available = args_.is_kind(SequenceKind::tuple) ? args_.sequence().items.size() : 1;
    if (used_ >= available) context_.fail("% format: not enough arguments");
    return args_.is_kind(SequenceKind::tuple) ? args_.sequence().items[used_++] : (++used_, args_);
  }

  std::int64_t star() {
    ++at_;
    const Value v = next_argument();
    if (!v.is_integral()) context_.fail("% format: * takes an integer");
    return std::clamp<std::int64_t>(v.integer(), -kMaxWidth, kMaxWidth);
  }

  // "(name)" after the percent sign, looked up in the dict.
  std::optional<Value> named_argument() {
    if (at_ >= format_.size() || format_[at_] != '(') return std::nullopt;
    const std::size_t end = format_.find(')', at_);
    if (end == std::string::npos) context_.fail("% format: a key is not closed");
    const std::string key(format_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    if (!args_.is_dict()) context_.fail("% format: a key needs a dict of arguments");
    const Value* found = args_.dict().find(context_, key);
    if (found == nullptr) context_.fail("% format: the arguments have no key '" + key + "'");
    used_ = 1;
    return *found;
  }

  bool read_flags(FormatSpec& spec) {
    bool zero = false;
    for (; at_ < format_.size(); ++at_) {
      switch (format_[at_]) {
        case '-':
          spec.align = '<';
          break;
        case '+':
          spec.sign = '+';
          break;
        case ' ':
          if (spec.sign != '+') spec.sign = ' ';
          break;
        case '#':
          spec.alternate = true;
          break;
        case '0':
          zero = true;
          break;
        default:
          return zero;
      }
    }
    return zero;
  }

  std::string conversion() {
    if (at_ < format_.size() && format_[at_] == '%') {
      ++at_;
      return "%";
    }
    const std::optional<Value> named = named_argument();
    FormatSpec spec;
    const bool zero = read_flags(spec);
    const bool is_star = at_ < format_.size() && format_[at_] == '*';
    spec.width = is_star ? star() : read_number(context_, format_, at_).value_or(0);
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      const bool star_precision = at_ < format_.size() && format_[at_] == '*';
      spec.precision = star_precision ? star() : read_number(context_, format_, at_).value_or(0);
      spec.precision = std::max<std::int64_t>(*spec.precision, 0);
    }
    while (at_ < format_.size() && (format_[at_] == 'l' || format_[at_] == 'h' || format_[at_] == 'L')) ++at_;
    if (at_ >= format_.size()) context_.fail("% format: the text ends inside a conversion");
    spec.type = format_[at_++];
    if (spec.type == '%') return "%";
    return convert(spec, zero, named ? *named : next_argument());
  }

  std::string convert(FormatSpec spec, bool zero, const Value& value) {
    if (spec.align == 0) spec.align = '>';
    const char type = spec.type;
    if (type == 's' || type == 'r' || type == 'a') {
      std::string shown = type == 's'   ? to_str(context_, value)
                          : type == 'r' ? to_repr(context_, value)
                                        : ascii_repr(context_, value);
      const bool escape = is_markup_ && !(value.is_text() && value.text().is_markup);
      return format_text(context_, escape ? escape_html(shown) : shown, spec);
    }
    if (type == 'c') return format_text(context_, character(value), spec);
    if (std::string_view("diuxXoeEfFgG").find(type) == std::string_view::npos) {
      context_.fail(std::string("% format: unknown conversion '%") + type + "'");
    }
    if (!value.is_number()) {
      context_.fail(std::string("% format: '%") + type + "' takes a number, not " + value.type_name());
    }
    if (zero && spec.align != '<') {
      spec.fill = "0";
      spec.align = '=';
    }
    return numeric(spec, value);
  }

  std::string numeric(FormatSpec spec, const Value& value) {
    if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
    if (spec.type != 'd' && spec.type != 'x' && spec.type != 'X' && spec.type != 'o') {
      return format_number(context_, value, spec);
    }
    const std::int64_t least_digits = spec.precision.value_or(0);
    spec.precision.reset();
    Value integer = value;
    if (value.is_float() && spec.type == 'd') {
      if (!(std::abs(value.real()) < 9.2e18)) context_.fail("% format: the number does not fit in 64 bits");
      integer = Value(static_cast<std::int64_t>(value.real()));
    }
    if (least_digits == 0) return format_number(context_, integer, spec);
    FormatSpec digits = spec;
    digits.width = least_digits + (integer.is_integral() && integer.integer() < 0 ? 1 : 0) + (spec.sign != '-' ? 1 : 0);
    digits.fill = "0";
    digits.align = '=';
    return format_text(context_, format_number(context_, integer, digits), spec_for_text(spec));
  }

  static FormatSpec spec_for_text(FormatSpec spec) {
    spec.precision.reset();
    if (spec.align == '=') spec.align = '>';
    return spec;
  }

  std::string character(const Value& value) {
    std::string out;
    if (value.is_text() && value.text().code_points == 1) return value.bytes();
    const bool valid = value.is_integral() && value.integer() >= 0 && value.integer() <= 0x10FFFF &&
                       (value.integer() < 0xD800 || value.integer() > 0xDFFF);
    if (!valid) context_.fail("% format: '%c' takes a character");
    append_utf8(out, static_cast<char32_t>(value.integer()));
    return out;
  }

  Context& context_;
  std::string_view format_;
  bool is_markup_;
  const Value& args_;
  std::size_t at_ = 0;
  std::size_t used_ = 0;
};

}  // namespace

Value format_percent(Context& context, const Value& format, const Value& args) {
  return context.make_text(PercentFormatter(context, format, args).run(), format.text().is_markup);
}

}  // namespace sluice::text::jinja
