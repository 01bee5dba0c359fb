#include <algorithm>

#include "text/jinja_compare.h"
#include "text/jinja_context.h"
#include "text/jinja_iterate.h"
#include "text/jinja_methods.h"
#include "text/jinja_operators.h"
#include "text/jinja_sequence.h"
#include "text/jinja_tables.h"
#include "text/jinja_unicode.h"

// Filters over whole sequences. Those that Jinja writes as generators give their items once here too.
namespace sluice::text::jinja {
namespace {

Value first(Context& context, const Value& input, const Bound&) {
  auto item = Iterator(context, input).next();
  return item ? *item : Value::undefined("filter 'first': the sequence is empty");
}

Value reversed_items(Context& context, const Value& input) {
  const auto compute = [&context, input] {
    std::vector<Value> items = collect(context, input);
    std::reverse(items.begin(), items.end());
    return items;
  };
  return Generator::deferred(context, compute, input.depth());
}

Value last(Context& context, const Value& input, const Bound&) {
  if (input.is_object()) context.fail("filter 'last' needs a sequence, not a " + input.type_name());
  const std::vector<Value> items = collect(context, input);
  return items.empty() ? Value::undefined("filter 'last': the sequence is empty") : items.back();
}

Value length(Context& context, const Value& input, const Bound& args) {
  const auto size = length_of(input);
  if (!size) context.fail(args.callee() + ": a value of type " + input.type_name() + " has no length");
  return Value(static_cast<std::int64_t>(*size));
}

Value list(Context& context, const Value& input, const Bound&) { return context.make_list(collect(context, input)); }

Value reverse(Context& context, const Value& input, const Bound&) {
  if (input.is_text()) {
    std::string out;
    for (std::size_t end = input.bytes().size(); end > 0;) append_utf8(out, decode_previous(input.bytes(), end));
    return context.make_text(std::move(out), input.text().is_markup);
  }
  if (!is_iterable(input))
    context.fail("filter 'reverse': a value of type " + input.type_name() + " cannot be iterated over");
  if (!input.is_object()) return reversed_items(context, input);
  std::vector<Value> items = collect(context, input);
  std::reverse(items.begin(), items.end());
  return context.make_list(std::move(items));
}

// Key of an item for sort: one value for each of the paths separated by commas.
Value sort_key(Context& context, const Value& item, const Value& paths, bool case_sensitive) {
  std::vector<Value> keys;
  const auto add = [&](const Value& path) {
    const Value key = attribute_path(context, item, path);
    keys.push_back(case_sensitive ? key : fold_case(context, key));
  };
  if (!paths.is_text()) {
    add(paths);
    return context.make_list(std::move(keys));
  }
  std::string_view rest = paths.bytes();
  while (true) {
    const std::size_t comma = rest.find(',');
    add(context.make_text(std::string(rest.substr(0, comma))));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return context.make_list(std::move(keys));
}

Value sort(Context& context, const Value& input, const Bound& args) {
  const std::vector<Value> items = collect(context, input);
  std::vector<Value> keys;
  for (const Value& item : items) keys.push_back(sort_key(context, item, args.get(2), args.truth(1, false)));
  std::vector<Value> out;
  for (const std::size_t i : sorted_order(context, keys, args.truth(0, false))) out.push_back(items[i]);
  return context.make_list(std::move(out));
}

Value dictsort(Context& context, const Value& input, const Bound& args) {
  if (input.is_undefined()) context.fail_undefined(input);
  if (!input.is_dict()) context.fail("filter 'dictsort' takes a dict, not " + input.type_name());
  const bool by_value = args.has(1) && args.text(1) == "value";
  if (args.has(1) && !by_value && args.text(1) != "key") context.fail("filter 'dictsort' sorts by 'key' or 'value'");
  const auto& entries = input.dict().entries;
  std::vector<Value> keys;
  for (const auto& [key, value] : entries) {
    const Value& used = by_value ? value : key;
    keys.push_back(args.truth(0, false) ? used : fold_case(context, used));
  }
  std::vector<Value> out;
  for (const std::size_t i : sorted_order(context, keys, args.truth(2, false))) {
    out.push_back(context.make_pair(entries[i].first, entries[i].second));
  }
  return context.make_list(std::move(out));
}

std::vector<Value> unique_items(Context& context, const Value& input, const Value& path, bool case_sensitive) {
  std::vector<Value> seen;
  std::vector<Value> out;
  for (Value& item : collect(context, input)) {
    Value key = attribute_path(context, item, path);
    if (!case_sensitive) key = fold_case(context, key);
    if (!is_hashable(context, key))
      context.fail("filter 'unique': a value of type " + key.type_name() + " has no hash");
    const auto is_key = [&](const Value& other) { return equal(context, other, key); };
    if (std::any_of(seen.begin(), seen.end(), is_key)) continue;
    seen.push_back(std::move(key));
    out.push_back(std::move(item));
  }
  return out;
}

Value unique(Context& context, const Value& input, const Bound& args) {
  const auto compute = [&context, input, path = args.get(1), case_sensitive = args.truth(0, false)] {
    return unique_items(context, input, path, case_sensitive);
  };
  return Generator::deferred(context, compute, input.depth());
}

Value sum(Context& context, const Value& input, const Bound& args) {
  Value total = args.get(1, Value(std::int64_t{0}));
  if (total.is_text()) context.fail("filter 'sum' does not join strings; use 'join'");
  Iterator items(context, input);
  while (const auto item = items.next()) {
    total = apply(context, BinaryOp::add, total, attribute_path(context, *item, args.get(0)));
  }
  return total;
}

Value extreme(Context& context, const Value& input, const Bound& args, bool largest) {
  const auto key_of = [&](const Value& item) {
    const Value key = attribute_path(context, item, args.get(1));
    return args.truth(0, false) ? key : fold_case(context, key);
  };
  Iterator items(context, input);
  auto best = items.next();
  if (!best) return Value::undefined(args.callee() + ": the sequence is empty");
  Value best_key = key_of(*best);
  while (const auto item = items.next()) {
    const Value key = key_of(*item);
    if (largest ? less(context, best_key, key) : less(context, key, best_key)) {
      best = item;
      best_key = key;
    }
  }
  return *best;
}

Value min(Context& context, const Value& input, const Bound& args) { return extreme(context, input, args, false); }
Value max(Context& context, const Value& input, const Bound& args) { return extreme(context, input, args, true); }

std::vector<Value> batches_of(Context& context, const Value& input, std::int64_t size, const Value& filler) {
  std::vector<Value> batches;
  std::vector<Value> current;
  Iterator items(context, input);
  while (const auto item = items.next()) {
    if (static_cast<std::int64_t>(current.size()) == size) {
      batches.push_back(context.make_list(std::move(current)));
      current.clear();
    }
    current.push_back(*item);
  }
  if (current.empty()) return batches;
  const auto missing = size - static_cast<std::int64_t>(current.size());
  if (!filler.is_none() && missing > 0) {
    context.step(static_cast<std::uint64_t>(missing));
    current.resize(static_cast<std::size_t>(size), filler);
  }
  batches.push_back(context.make_list(std::move(current)));
  return batches;
}

Value batch(Context& context, const Value& input, const Bound& args) {
  const auto compute = [&context, input, size = args.integer(0, 0), filler = args.get(1)] {
    return batches_of(context, input, size, filler);
  };
  return Generator::deferred(context, compute, std::max(input.depth(), args.get(1).depth()));
}

Value items(Context& context, const Value& input, const Bound&) {
  const auto compute = [&context, input] {
    std::vector<Value> pairs;
    if (input.is_undefined()) return pairs;
    if (!input.is_dict()) context.fail("filter 'items' takes a dict, not " + input.type_name());
    for (const auto& [key, value] : input.dict().entries) pairs.push_back(context.make_pair(key, value));
    return pairs;
  };
  return Generator::deferred(context, compute, input.depth());
}

constexpr Filter kFilters[] = {
    {"first", "", first},
    {"last", "", last},
    {"length", "", length},
    {"count", "", length},
    {"list", "", list},
    {"reverse", "", reverse},
    {"sort", "reverse? case_sensitive? attribute?", sort},
    {"dictsort", "case_sensitive? by? reverse?", dictsort},
    {"unique", "case_sensitive? attribute?", unique},
    {"sum", "attribute? start?", sum},
    {"min", "case_sensitive? attribute?", min},
    {"max", "case_sensitive? attribute?", max},
    {"batch", "linecount fill_with?", batch},
    {"items", "", items},
};

}  // namespace

std::span<const Filter> sequence_filters() { return kFilters; }

}  // namespace sluice::text::jinja
