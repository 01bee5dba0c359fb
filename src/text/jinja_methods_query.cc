#include <algorithm>

#include "text/jinja_compare.h"
#include "text/jinja_context.h"
#include "text/jinja_iterate.h"
#include "text/jinja_methods.h"
#include "text/jinja_unicode.h"

// Methods of str that answer a question about it. Positions are code points, as in Python.
namespace sluice::text::jinja {
namespace {

constexpr std::size_t kBytesPerStep = 64;

// The part of a text that optional start and end arguments select.
struct Window {
  std::string_view bytes;
  std::size_t first = 0;  // code point at which it starts
  bool is_valid = true;   // false when start lies behind end: then nothing matches, not even ""
};

Window window_of(Context& context, const Value& self, const Bound& args) {
  const Text& text = self.text();
  context.step(1 + text.bytes.size() / kBytesPerStep);
  const auto size = static_cast<std::int64_t>(text.code_points);
  const auto position = [&](std::size_t i, std::int64_t otherwise) {
    const std::int64_t at = args.given(i) ? args.integer(i, 0) : otherwise;
    return at < 0 ? std::max<std::int64_t>(at + size, 0) : at;
  };
  const std::int64_t first = position(1, 0);
  const std::int64_t last = std::min(position(2, size), size);
  Window window;
  window.first = static_cast<std::size_t>(first);
  window.is_valid = first <= last;
  if (!window.is_valid) return window;
  const std::size_t begin = offset_of(text.bytes, window.first);
  const std::string_view rest = std::string_view(text.bytes).substr(begin);
  window.bytes = rest.substr(0, offset_of(rest, static_cast<std::size_t>(last - first)));
  return window;
}

// Whether any of the texts in argument 0 (one text, or a tuple of them) matches.
template <class Matches>
Value any_affix(Context& context, const Value& self, const Bound& args, Matches matches) {
  const Window window = window_of(context, self, args);
  const Value& affix = args.at(0);
  if (affix.is_text()) return Value(window.is_valid && matches(window.bytes, affix.bytes()));
  if (!affix.is_kind(SequenceKind::tuple)) {
    context.fail(args.callee() + " takes a str or a tuple of them, not " + affix.type_name());
  }
  bool found = false;
  for (const Value& item : affix.sequence().items) {
    if (!item.is_text()) context.fail(args.callee() + " takes a tuple of str, not of " + item.type_name());
    found = found || (window.is_valid && matches(window.bytes, item.bytes()));
  }
  return Value(found);
}

Value startswith(Context& context, const Value& self, const Bound& args) {
  return any_affix(context, self, args, [](std::string_view text, std::string_view prefix) {
    return text.substr(0, prefix.size()) == prefix;
  });
}

Value endswith(Context& context, const Value& self, const Bound& args) {
  return any_affix(context, self, args, [](std::string_view text, std::string_view suffix) {
    return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
  });
}

std::int64_t position_of(Context& context, const Value& self, const Bound& args, bool from_end) {
  const std::string& needle = args.text(0);
  const Window window = window_of(context, self, args);
  if (!window.is_valid) return -1;
  const std::size_t hit =
      from_end ? rfind_bytes(context, window.bytes, needle, window.bytes.size()) : find_bytes(window.bytes, needle);
  if (hit == std::string_view::npos) return -1;
  return static_cast<std::int64_t>(window.first + count_code_points(window.bytes.substr(0, hit)));
}

Value find(Context& c, const Value& self, const Bound& args) { return Value(position_of(c, self, args, false)); }
Value rfind(Context& c, const Value& self, const Bound& args) { return Value(position_of(c, self, args, true)); }

Value index(Context& context, const Value& self, const Bound& args) {
  const std::int64_t at = position_of(context, self, args, false);
  if (at < 0) context.fail("str.index: the substring is not in the text");
  return Value(at);
}

Value rindex(Context& context, const Value& self, const Bound& args) {
  const std::int64_t at = position_of(context, self, args, true);
  if (at < 0) context.fail("str.rindex: the substring is not in the text");
  return Value(at);
}

Value count(Context& context, const Value& self, const Bound& args) {
  const std::string& needle = args.text(0);
  const Window window = window_of(context, self, args);
  if (!window.is_valid) return Value(std::int64_t{0});
  if (needle.empty()) return Value(static_cast<std::int64_t>(count_code_points(window.bytes) + 1));
  std::int64_t hits = 0;
  for (std::size_t at = 0; (at = find_bytes(window.bytes, needle, at)) != std::string_view::npos; at += needle.size()) {
    ++hits;
  }
  return Value(hits);
}

template <class Predicate>
Value all_characters(Context& context, const Value& self, Predicate predicate) {
  const std::string& bytes = self.bytes();
  context.step(1 + bytes.size() / kBytesPerStep);
  for (std::size_t at = 0; at < bytes.size();) {
    if (!predicate(decode_next(bytes, at))) return Value(false);
  }
  return Value(!bytes.empty());
}

Value isdigit(Context& c, const Value& self, const Bound&) { return all_characters(c, self, is_decimal); }
Value isalpha(Context& c, const Value& self, const Bound&) { return all_characters(c, self, is_letter); }
Value isspace(Context& c, const Value& self, const Bound&) { return all_characters(c, self, is_space); }

Value isalnum(Context& c, const Value& self, const Bound&) {
  return all_characters(c, self, [](char32_t character) { return is_letter(character) || is_decimal(character); });
}

Value isascii(Context& c, const Value& self, const Bound&) {
  return Value(self.bytes().empty() ||
               all_characters(c, self, [](char32_t character) { return character < 0x80; }).truth());
}

// At least one cased character, and none of the other case.
template <class Wanted, class Unwanted>
Value has_case(Context& context, const Value& self, Wanted wanted, Unwanted unwanted) {
  const std::string& bytes = self.bytes();
  context.step(1 + bytes.size() / kBytesPerStep);
  bool found = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const char32_t c = decode_next(bytes, at);
    if (unwanted(c) || is_titlecase(c)) return Value(false);
    found = found || wanted(c);
  }
  return Value(found);
}

Value isupper(Context& c, const Value& self, const Bound&) { return has_case(c, self, is_upper, is_lower); }
Value islower(Context& c, const Value& self, const Bound&) { return has_case(c, self, is_lower, is_upper); }

constexpr Method kMethods[] = {
    {"startswith", "_ _? _?", startswith},
    {"endswith", "_ _? _?", endswith},
    {"find", "_ _? _?", find},
    {"rfind", "_ _? _?", rfind},
    {"index", "_ _? _?", index},
    {"rindex", "_ _? _?", rindex},
    {"count", "_ _? _?", count},
    {"isdigit", "", isdigit},
    {"isdecimal", "", isdigit},
    {"isnumeric", "", isdigit},
    {"isalpha", "", isalpha},
    {"isalnum", "", isalnum},
    {"isspace", "", isspace},
    {"isascii", "", isascii},
    {"isupper", "", isupper},
    {"islower", "", islower},
};

}  // namespace

std::span<const Method> text_query_methods() { return kMethods; }

}  // namespace sluice::text::jinja
