#include <algorithm>

#include "text/jinja_context.h"
#include "text/jinja_format.h"
#include "text/jinja_iterate.h"
#include "text/jinja_print.h"
#include "text/jinja_sequence.h"
#include "text/jinja_split.h"
#include "text/jinja_tables.h"
#include "text/jinja_unicode.h"

// Filters that take text and give text. What is not text is turned into it first, as Jinja does.
namespace sluice::text::jinja {
namespace {

Value trim(Context& context, const Value& input, const Bound& args) {
  const Value text = as_text(context, input);
  std::string_view chars;
  if (args.given(0)) chars = args.text(0);
  const auto stripped = strip(text.bytes(), Side::both, args.given(0) ? &chars : nullptr);
  return context.make_text(std::string(stripped), text.text().is_markup);
}

using Mapping = std::string (*)(std::string_view);

Value mapped(Context& context, const Value& input, Mapping mapping) {
  const Value text = as_text(context, input);
  return context.make_text(mapping(text.bytes()), text.text().is_markup);
}

Value upper(Context& context, const Value& input, const Bound&) { return mapped(context, input, to_upper); }
Value lower(Context& context, const Value& input, const Bound&) { return mapped(context, input, to_lower); }
Value capitalized(Context& context, const Value& input, const Bound&) { return mapped(context, input, capitalize); }

// Unlike str.title, only white space, hyphens and opening brackets start a word.
Value title(Context& context, const Value& input, const Bound&) {
  const std::string bytes = to_str(context, input);
  const auto starts_word = [](char32_t c) {
    return is_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
  };
  std::string out;
  std::size_t begin = 0;
  while (begin < bytes.size()) {
    std::size_t at = begin;
    std::size_t first_end = begin;
    const bool is_break = starts_word(decode_next(bytes, first_end));
    while (at < bytes.size()) {
      std::size_t next = at;
      if (starts_word(decode_next(bytes, next)) != is_break) break;
      at = next;
    }
    const std::string_view piece = std::string_view(bytes).substr(begin, at - begin);
    out += to_upper(piece.substr(0, first_end - begin)) + to_lower(piece.substr(first_end - begin));
    begin = at;
  }
  return context.make_text(std::move(out));
}

Value replace(Context& context, const Value& input, const Bound& args) {
  const std::string old_text = to_str(context, args.at(0));
  const std::string new_text = to_str(context, args.at(1));
  const std::int64_t count = args.given(2) ? args.integer(2, -1) : -1;
  return context.make_text(replace_all(context, to_str(context, input), old_text, new_text, count));
}

Value join(Context& context, const Value& input, const Bound& args) {
  const std::string separator = args.has(0) ? to_str(context, args.at(0)) : "";
  std::string out;
  Iterator items(context, input);
  for (bool first = true; const auto item = items.next(); first = false) {
    if (!first) out += separator;
    const std::string text = to_str(context, args.given(1) ? attribute_path(context, *item, args.at(1)) : *item);
    context.charge_bytes(text.size() + separator.size());
    out += text;
  }
  return context.make_text(std::move(out));
}

Value indent(Context& context, const Value& input, const Bound& args) {
  if (input.is_undefined()) context.fail_undefined(input);
  if (!input.is_text()) context.fail("filter 'indent' takes a str, not " + input.type_name());
  const bool is_markup = input.text().is_markup;
  std::string margin;
  if (args.has(0) && args.at(0).is_text()) {
    margin = args.text(0);
  } else {
    const std::int64_t width = std::max<std::int64_t>(args.integer(0, 4), 0);
    context.charge_bytes(static_cast<std::uint64_t>(width));
    margin.assign(static_cast<std::size_t>(width), ' ');
  }
  const bool indent_blank = args.truth(2, false);
  std::string out = args.truth(1, false) ? margin : "";
  const std::string text = input.bytes() + "\n";
  bool first = true;
  for (const std::string_view line : split_lines(context, text, false)) {
    if (!first) out += '\n';
    if (!first && (indent_blank || !line.empty())) {
      context.charge_bytes(margin.size());
      out += margin;
    }
    out += line;
    first = false;
  }
  return context.make_text(std::move(out), is_markup);
}

Value center(Context& context, const Value& input, const Bound& args) {
  const Value text = as_text(context, input);
  return context.make_text(pad(context, text.text(), args.integer(0, 80), " ", Align::center), text.text().is_markup);
}

Value format(Context& context, const Value& input, const Bound& args) {
  const CallArgs& all = args.all();
  if (!all.positional.empty() && !all.named.empty()) {
    context.fail("filter 'format' takes positional or named arguments, not both");
  }
  const Value text = as_text(context, input);
  if (all.named.empty()) return format_percent(context, text, context.make_tuple(all.positional));
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : all.named) entries.emplace_back(context.make_text(name), value);
  return format_percent(context, text, context.make_dict(std::move(entries)));
}

Value string(Context& context, const Value& input, const Bound&) { return as_text(context, input); }

Value safe(Context& context, const Value& input, const Bound&) {
  return context.make_text(to_str(context, input), true);
}

Value escape(Context& context, const Value& input, const Bound&) {
  if (input.is_text() && input.text().is_markup) return input;
  return context.make_text(escape_html(to_str(context, input)), true);
}

Value forceescape(Context& context, const Value& input, const Bound&) {
  return context.make_text(escape_html(to_str(context, input)), true);
}

constexpr Filter kFilters[] = {
    {"trim", "chars?", trim},
    {"upper", "", upper},
    {"lower", "", lower},
    {"capitalize", "", capitalized},
    {"title", "", title},
    {"replace", "old new count?", replace},
    {"join", "d? attribute?", join},
    {"indent", "width? first? blank?", indent},
    {"center", "width?", center},
    {"format", "*", format},
    {"string", "", string},
    {"safe", "", safe},
    {"escape", "", escape},
    {"e", "", escape},
    {"forceescape", "", forceescape},
};

}  // namespace

std::span<const Filter> text_filters() { return kFilters; }

}  // namespace sluice::text::jinja
