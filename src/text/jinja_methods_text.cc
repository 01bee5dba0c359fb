#include <algorithm>

#include "text/jinja_compare.h"
#include "text/jinja_context.h"
#include "text/jinja_format.h"
#include "text/jinja_iterate.h"
#include "text/jinja_methods.h"
#include "text/jinja_print.h"
#include "text/jinja_split.h"
#include "text/jinja_unicode.h"

// Methods of str that make new text. A text that is marked safe stays so, and what is put into it is escaped.
namespace sluice::text::jinja {
namespace {

Value like(Context& context, const Value& self, std::string bytes) {
  return context.make_text(std::move(bytes), self.text().is_markup);
}

// `inserted` as it may appear inside `self`.
std::string escaped_for(const Value& self, const Value& inserted) {
  const bool escape = self.text().is_markup && !inserted.text().is_markup;
  return escape ? escape_html(inserted.bytes()) : inserted.bytes();
}

Value list_of(Context& context, const Value& self, const std::vector<std::string_view>& pieces) {
  std::vector<Value> items;
  for (const std::string_view piece : pieces) items.push_back(like(context, self, std::string(piece)));
  return context.make_list(std::move(items));
}

Value strip_side(Context& context, const Value& self, const Bound& args, Side side) {
  if (!args.given(0)) return like(context, self, std::string(strip(self.bytes(), side)));
  const std::string_view chars = args.text(0);
  context.step(chars.size());
  return like(context, self, std::string(strip(self.bytes(), side, &chars)));
}

Value strip_both(Context& c, const Value& self, const Bound& args) { return strip_side(c, self, args, Side::both); }
Value strip_left(Context& c, const Value& self, const Bound& args) { return strip_side(c, self, args, Side::left); }
Value strip_right(Context& c, const Value& self, const Bound& args) { return strip_side(c, self, args, Side::right); }

Value split_in(Context& context, const Value& self, const Bound& args, Direction direction) {
  const std::int64_t max_splits = args.integer(1, -1);
  if (!args.given(0)) return list_of(context, self, split_at_space(context, self.bytes(), max_splits, direction));
  return list_of(context, self, split_at(context, self.bytes(), args.text(0), max_splits, direction));
}

Value split(Context& c, const Value& self, const Bound& args) { return split_in(c, self, args, Direction::forward); }
Value rsplit(Context& c, const Value& self, const Bound& args) { return split_in(c, self, args, Direction::backward); }

Value splitlines(Context& context, const Value& self, const Bound& args) {
  return list_of(context, self, split_lines(context, self.bytes(), args.truth(0, false)));
}

Value partition(Context& context, const Value& self, const Bound& args) {
  const std::string& separator = args.text(0);
  const auto pieces = split_at(context, self.bytes(), separator, 1, Direction::forward);
  const bool found = pieces.size() == 2;
  return context.make_tuple({like(context, self, std::string(pieces[0])), like(context, self, found ? separator : ""),
                             like(context, self, found ? std::string(pieces[1]) : "")});
}

Value rpartition(Context& context, const Value& self, const Bound& args) {
  const std::string& separator = args.text(0);
  const auto pieces = split_at(context, self.bytes(), separator, 1, Direction::backward);
  const bool found = pieces.size() == 2;
  return context.make_tuple({like(context, self, found ? std::string(pieces[0]) : ""),
                             like(context, self, found ? separator : ""),
                             like(context, self, std::string(pieces.back()))});
}

Value replace(Context& context, const Value& self, const Bound& args) {
  args.text(1);
  const std::string inserted = escaped_for(self, args.at(1));
  return like(context, self, replace_all(context, self.bytes(), args.text(0), inserted, args.integer(2, -1)));
}

Value join(Context& context, const Value& self, const Bound& args) {
  std::string out;
  Iterator items(context, args.at(0));
  for (bool first = true; const auto item = items.next(); first = false) {
    if (!item->is_text()) context.fail("str.join: an item is of type " + item->type_name() + ", not str");
    if (!first) out += self.bytes();
    out += escaped_for(self, *item);
    context.charge_bytes(item->bytes().size() + self.bytes().size());
  }
  return like(context, self, std::move(out));
}

Value upper(Context& c, const Value& self, const Bound&) { return like(c, self, to_upper(self.bytes())); }
Value lower(Context& c, const Value& self, const Bound&) { return like(c, self, to_lower(self.bytes())); }
Value title(Context& c, const Value& self, const Bound&) { return like(c, self, to_title(self.bytes())); }
Value capitalized(Context& c, const Value& self, const Bound&) { return like(c, self, capitalize(self.bytes())); }
Value swapcase(Context& c, const Value& self, const Bound&) { return like(c, self, swap_case(self.bytes())); }

Value padded(Context& context, const Value& self, const Bound& args, Align align) {
  const std::string fill = args.has(1) ? args.text(1) : " ";
  if (count_code_points(fill) != 1) context.fail("the fill character must be one character");
  return like(context, self, pad(context, self.text(), args.integer(0, 0), fill, align));
}

Value ljust(Context& c, const Value& self, const Bound& args) { return padded(c, self, args, Align::left); }
Value rjust(Context& c, const Value& self, const Bound& args) { return padded(c, self, args, Align::right); }
Value center(Context& c, const Value& self, const Bound& args) { return padded(c, self, args, Align::center); }

Value zfill(Context& context, const Value& self, const Bound& args) {
  const std::string& bytes = self.bytes();
  const bool has_sign = !bytes.empty() && (bytes[0] == '-' || bytes[0] == '+');
  Text digits;
  digits.bytes = bytes.substr(has_sign ? 1 : 0);
  digits.code_points = self.text().code_points - (has_sign ? 1 : 0);
  const std::int64_t width = args.integer(0, 0);
  const std::string sign = bytes.substr(0, has_sign ? 1 : 0);
  return like(context, self, sign + pad(context, digits, has_sign && width > 0 ? width - 1 : width, "0", Align::right));
}

Value removeprefix(Context& context, const Value& self, const Bound& args) {
  const std::string& prefix = args.text(0);
  const bool found = self.bytes().compare(0, prefix.size(), prefix) == 0;
  return like(context, self, found ? self.bytes().substr(prefix.size()) : self.bytes());
}

Value removesuffix(Context& context, const Value& self, const Bound& args) {
  const std::string& suffix = args.text(0);
  const std::string& bytes = self.bytes();
  const bool found =
      bytes.size() >= suffix.size() && bytes.compare(bytes.size() - suffix.size(), suffix.size(), suffix) == 0;
  return like(context, self, found ? bytes.substr(0, bytes.size() - suffix.size()) : bytes);
}

Value format(Context& context, const Value& self, const Bound& args) {
  return format_braces(context, self, args.all());
}

constexpr Method kMethods[] = {
    {"strip", "_?", strip_both},
    {"lstrip", "_?", strip_left},
    {"rstrip", "_?", strip_right},
    {"split", "sep? maxsplit?", split},
    {"rsplit", "sep? maxsplit?", rsplit},
    {"splitlines", "keepends?", splitlines},
    {"partition", "_", partition},
    {"rpartition", "_", rpartition},
    {"replace", "_ _ _?", replace},
    {"join", "_", join},
    {"upper", "", upper},
    {"lower", "", lower},
    {"title", "", title},
    {"capitalize", "", capitalized},
    {"swapcase", "", swapcase},
    {"ljust", "_ _?", ljust},
    {"rjust", "_ _?", rjust},
    {"center", "_ _?", center},
    {"zfill", "_", zfill},
    {"removeprefix", "_", removeprefix},
    {"removesuffix", "_", removesuffix},
    {"format", "*", format},
};

}  // namespace

std::span<const Method> text_methods() { return kMethods; }

}  // namespace sluice::text::jinja
