#include <algorithm>

#include "text/jinja_context.h"
#include "text/jinja_iterate.h"
#include "text/jinja_sequence.h"
#include "text/jinja_tables.h"

// Filters that apply another filter or a test, named by their first argument, to every item. They work when their
// items are asked for, as Jinja's generators do.
namespace sluice::text::jinja {
namespace {

int deepest(const CallArgs& args) {
  int depth = 0;
  for (const Value& v : args.positional) depth = std::max(depth, v.depth());
  for (const auto& [name, v] : args.named) depth = std::max(depth, v.depth());
  return depth;
}

Value empty_generator(Context& context) {
  return Generator::make(context, context.make_list({}), [](const Value&) { return std::optional<Value>(); });
}

// Takes the first positional argument off.
Value shift(CallArgs& args) {
  Value front = std::move(args.positional.front());
  args.positional.erase(args.positional.begin());
  return front;
}

Value map_attribute(Context& context, const Value& input, const CallArgs& args) {
  Value path;
  Value otherwise;
  for (const auto& [name, value] : args.named) {
    if (name == "attribute") {
      path = value;
    } else if (name == "default") {
      otherwise = value;
    } else {
      context.fail("filter 'map' has no argument named '" + name + "'");
    }
  }
  const auto step = [&context, path, otherwise](const Value& item) {
    return std::optional<Value>(attribute_path(context, item, path, otherwise.is_none() ? nullptr : &otherwise));
  };
  return Generator::make(context, input, step, deepest(args));
}

Value map(Context& context, const Value& input, const Bound& args) {
  if (!input.truth()) return empty_generator(context);
  const CallArgs& all = args.all();
  const bool has_attribute = std::any_of(all.named.begin(), all.named.end(),
                                         [](const auto& argument) { return argument.first == "attribute"; });
  if (all.positional.empty() && has_attribute) return map_attribute(context, input, all);
  if (all.positional.empty()) context.fail("filter 'map' needs the name of a filter, or attribute=");
  CallArgs rest = all;
  const Value name = shift(rest);
  if (!name.is_text()) context.fail("filter 'map': the name of a filter is a str, not " + name.type_name());
  const Filter* filter = find_filter(name.bytes());
  if (filter == nullptr) context.fail("filter 'map': there is no filter '" + name.bytes() + "'");
  const auto step = [&context, filter, rest](const Value& item) mutable {
    return std::optional<Value>(run_filter(context, *filter, item, rest));
  };
  return Generator::make(context, input, step, deepest(all));
}

struct Choice {
  bool by_attribute = false;
  bool keep_matching = true;
};

Value choose(Context& context, const Value& input, const Bound& args, Choice choice) {
  if (!input.truth()) return empty_generator(context);
  CallArgs rest = args.all();
  Value path;
  if (choice.by_attribute) {
    if (rest.positional.empty()) context.fail(args.callee() + " needs the name of an attribute");
    path = shift(rest);
  }
  const Test* test = nullptr;
  if (!rest.positional.empty()) {
    const Value name = shift(rest);
    if (name.is_text()) test = find_test(name.bytes());
    if (test == nullptr) {
      context.fail(args.callee() + ": there is no test '" + (name.is_text() ? name.bytes() : name.type_name()) + "'");
    }
  }
  const auto step = [&context, choice, path, test, rest](const Value& item) mutable {
    const Value subject = attribute_path(context, item, path);
    const bool matches = test != nullptr ? run_test(context, *test, subject, rest) : subject.truth();
    return matches == choice.keep_matching ? std::optional<Value>(item) : std::nullopt;
  };
  return Generator::make(context, input, step, deepest(args.all()));
}

Value select(Context& context, const Value& input, const Bound& args) {
  return choose(context, input, args, {.by_attribute = false, .keep_matching = true});
}
Value reject(Context& context, const Value& input, const Bound& args) {
  return choose(context, input, args, {.by_attribute = false, .keep_matching = false});
}
Value selectattr(Context& context, const Value& input, const Bound& args) {
  return choose(context, input, args, {.by_attribute = true, .keep_matching = true});
}
Value rejectattr(Context& context, const Value& input, const Bound& args) {
  return choose(context, input, args, {.by_attribute = true, .keep_matching = false});
}

constexpr Filter kFilters[] = {
    {"map", "*", map},
    {"select", "*", select},
    {"reject", "*", reject},
    {"selectattr", "*", selectattr},
    {"rejectattr", "*", rejectattr},
};

}  // namespace

std::span<const Filter> choice_filters() { return kFilters; }

}  // namespace sluice::text::jinja
