#include "text/jinja_sequence.h"

#include <algorithm>
#include <numeric>

#include "text/jinja_compare.h"
#include "text/jinja_context.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {
namespace {

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

Value attribute_path(Context& context, const Value& item, const Value& path, const Value* otherwise) {
  const auto step_into = [&](const Value& from, const Value& key) {
    Value found = get_item(context, from, key);
    return otherwise != nullptr && found.is_undefined() ? *otherwise : found;
  };
  if (path.is_none()) return item;
  if (!path.is_text()) return step_into(item, path);
  Value value = item;
  std::string_view rest = path.bytes();
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    Value key;
    if (is_digits(part)) {
      key = Value(parse_int(context, part, 10).value_or(0));
    } else {
      key = context.make_text(std::string(part));
    }
    value = step_into(value, key);
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value fold_case(Context& context, const Value& value) {
  return value.is_text() ? context.make_text(to_lower(value.bytes())) : value;
}

std::vector<std::size_t> sorted_order(Context& context, const std::vector<Value>& keys, bool reverse) {
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return reverse ? less(context, keys[b], keys[a]) : less(context, keys[a], keys[b]);
  });
  return order;
}

}  // namespace sluice::text::jinja
