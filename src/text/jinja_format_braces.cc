#include <algorithm>
#include <charconv>

#include "text/jinja_context.h"
#include "text/jinja_format.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {
namespace {

constexpr std::int64_t kMaxWidth = 1'000'000;

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_align(char32_t c) { return c == '<' || c == '>' || c == '^' || c == '='; }

class BraceFormatter {
 public:
  BraceFormatter(Context& context, const Value& format, const CallArgs& args)
      : context_(context), format_(format.bytes()), is_markup_(format.text().is_markup), args_(args) {}

  std::string run() {
    std::string out;
    while (at_ < format_.size()) {
      const char c = format_[at_];
      const bool doubled = at_ + 1 < format_.size() && format_[at_ + 1] == c;
      if (c != '{' && c != '}') {
        out += c;
        ++at_;
      } else if (doubled) {
        out += c;
        at_ += 2;
      } else if (c == '}') {
        context_.fail("str.format: a single '}'");
      } else {
        out += field();
      }
    }
    return out;
  }

 private:
  // "{name!conversion:spec}" at the opening brace.
  std::string field() {
    const std::size_t end = format_.find('}', at_);
    if (end == std::string_view::npos) context_.fail("str.format: a field is not closed");
    std::string_view text = format_.substr(at_ + 1, end - at_ - 1);
    if (text.find('{') != std::string_view::npos) context_.fail("str.format: nested fields are not supported");
    at_ = end + 1;
    const std::size_t colon = text.find(':');
    const std::string_view spec = colon == std::string_view::npos ? "" : text.substr(colon + 1);
    text = text.substr(0, colon);
    const std::size_t mark = text.find('!');
    char conversion = 0;
    if (mark != std::string_view::npos) {
      if (mark + 2 != text.size()) context_.fail("str.format: a conversion is one character");
      conversion = text[mark + 1];
      text = text.substr(0, mark);
    }
    return convert(lookup(text), conversion, spec);
  }

  Value lookup(std::string_view name) {
    const std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, end));
    std::string_view path = name.substr(end);
    while (!path.empty()) {
      if (path[0] == '.') {
        const std::size_t stop = std::min(path.find_first_of(".[", 1), path.size());
        value = get_attribute(context_, value, path.substr(1, stop - 1));
        path.remove_prefix(stop);
        continue;
      }
      const std::size_t close = path.find(']');
      if (path[0] != '[' || close == std::string_view::npos || close == 1)
        context_.fail("str.format: a malformed field");
      const std::string_view key = path.substr(1, close - 1);
      value = get_item(context_, value, is_digits(key) ? Value(index_of(key)) : context_.make_text(std::string(key)));
      path.remove_prefix(close + 1);
    }
    return value;
  }

  std::int64_t index_of(std::string_view digits) const {
    std::int64_t index = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (result.ec != std::errc()) context_.fail("str.format: an index is too large");
    return index;
  }

  Value argument(std::string_view name) {
    if (!name.empty() && !is_digits(name)) {
      for (const auto& [key, value] : args_.named) {
        if (key == name) return value;
      }
      context_.fail("str.format: there is no argument '" + std::string(name) + "'");
    }
    if (numbering_ != Numbering::none && (numbering_ == Numbering::automatic) != name.empty()) {
      context_.fail("str.format: automatic and manual numbering are mixed");
    }
    numbering_ = name.empty() ? Numbering::automatic : Numbering::manual;
    const auto index = name.empty() ? next_++ : static_cast<std::size_t>(index_of(name));
    if (index >= args_.positional.size()) context_.fail("str.format: not enough arguments");
    return args_.positional[index];
  }

  std::string convert(const Value& value, char conversion, std::string_view spec) {
    if (conversion != 0 && conversion != 's' && conversion != 'r') {
      context_.fail(std::string("str.format: unknown conversion '!") + conversion + "'");
    }
    std::string out;
    if (conversion == 'r') {
      out = format_text(context_, to_repr(context_, value), parse_spec(spec, true));
    } else if (conversion == 's' || value.is_text()) {
      out = format_text(context_, to_str(context_, value), parse_spec(spec, true));
    } else if (spec.empty()) {
      out = to_str(context_, value);
    } else if (value.is_number()) {
      out = format_number(context_, value, parse_spec(spec, false));
    } else {
      context_.fail("str.format: a value of type " + value.type_name() + " takes no format specification");
    }
    const bool escape = is_markup_ && !(value.is_text() && value.text().is_markup);
    return escape ? escape_html(out) : out;
  }

  FormatSpec parse_spec(std::string_view text, bool for_text) {
    FormatSpec spec;
    std::size_t at = parse_alignment(text, spec);
    const auto take = [&](std::string_view chars) {
      return at < text.size() && chars.find(text[at]) != std::string_view::npos ? text[at++] : char{0};
    };
    if (const char sign = take("+- ")) spec.sign = sign;
    const bool signed_text =
        for_text && at > 0 && std::string_view("+- ").find(text[at - 1]) != std::string_view::npos && spec.align == 0;
    spec.alternate = take("#") != 0;
    if (take("0") != 0 && spec.align == 0) {
      spec.fill = "0";
      spec.align = for_text ? '<' : '=';
    }
    spec.width = number(text, at).value_or(0);
    spec.grouping = take(",_");
    if (take(".") != 0) {
      spec.precision = number(text, at);
      if (!spec.precision) context_.fail("str.format: a precision is missing");
    }
    spec.type = take(for_text ? "s" : "bdoxXeEfFgG%");
    if (at != text.size() || signed_text || (for_text && (spec.align == '=' || spec.grouping != 0 || spec.alternate))) {
      context_.fail("str.format: the format specification '" + std::string(text) + "' is not supported here");
    }
    return spec;
  }

  // "[[fill]align]"; returns the offset behind it.
  static std::size_t parse_alignment(std::string_view text, FormatSpec& spec) {
    if (text.empty()) return 0;
    std::size_t after_fill = 0;
    decode_next(text, after_fill);
    if (after_fill < text.size() && is_align(static_cast<unsigned char>(text[after_fill]))) {
      spec.fill = std::string(text.substr(0, after_fill));
      spec.align = text[after_fill];
      return after_fill + 1;
    }
    if (!is_align(static_cast<unsigned char>(text[0]))) return 0;
    spec.align = text[0];
    return 1;
  }

  std::optional<std::int64_t> number(std::string_view text, std::size_t& at) const {
    const std::size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
    if (end == at) return std::nullopt;
    const std::int64_t value = index_of(text.substr(at, end - at));
    if (value > kMaxWidth) context_.fail("str.format: a width or precision is too large");
    at = end;
    return value;
  }

  enum class Numbering { none, automatic, manual };

  Context& context_;
  std::string_view format_;
  bool is_markup_;
  const CallArgs& args_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
  Numbering numbering_ = Numbering::none;
};

}  // namespace

Value format_braces(Context& context, const Value& format, const CallArgs& args) {
  return context.make_text(BraceFormatter(context, format, args).run(), format.text().is_markup);
}

}  // namespace sluice::text::jinja
