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

// Takes the first positional argument off.
Value shift(CallArgs& args) {
  Value front = std::move(args.positional.front());
  args.positional.erase(args.positional.begin());
  return front;
}

Generator::Step map_attribute(Context& context, const CallArgs& args) {
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
  return [&context, path, otherwise](const Value& item) {
    return std::optional<Value>(attribute_path(context, item, path, otherwise.is_none() ? nullptr : &otherwise));
  };
}

Generator::Step map_step(Context& context, const CallArgs& args) {
  const bool has_attribute = std::any_of(args.named.begin(), args.named.end(),
                                         [](const auto& argument) { return argument.first == "attribute"; });
  if (args.positional.empty() && has_attribute) return map_attribute(context, args);
  if (args.positional.empty()) context.fail("filter 'map' needs the name of a filter, or attribute=");
  CallArgs rest = args;
  const Value name = shift(rest);
  if (!name.is_text()) context.fail("filter 'map': the name of a filter is a str, not " + name.type_name());
  const Filter* filter = find_filter(name.bytes());
  if (filter == nullptr) context.fail("filter 'map': there is no filter '" + name.bytes() + "'");
  return [&context, filter, rest](const Value& item) mutable {
    return std::optional<Value>(run_filter(context, *filter, item, rest));
  };
}

// A generator whose step is prepared when the first item is asked for, and not at all for an empty input.
Value lazy(Context& context, const Value& input, const CallArgs& args, std::function<Generator::Step()> prepare) {
  const Value source = input.truth() ? input : context.make_list({});
  auto step = [prepare = std::move(prepare), prepared = Generator::Step()](const Value& item) mutable {
    if (!prepared) prepared = prepare();
    return prepared(item);
  };
  return Generator::stepwise(context, source, std::move(step), std::max(input.depth(), deepest(args)));
}

Value map(Context& context, const Value& input, const Bound& args) {
  return lazy(context, input, args.all(), [&context, all = args.all()] { return map_step(context, all); });
}

struct Choice {
  bool by_attribute = false;
  bool keep_matching = true;
};

Generator::Step choice_step(Context& context, const std::string& callee, CallArgs args, Choice choice) {
  Value path;
  if (choice.by_attribute) {
    if (args.positional.empty()) context.fail(callee + " needs the name of an attribute");
    path = shift(args);
  }
  const Test* test = nullptr;
  if (!args.positional.empty()) {
    const Value name = shift(args);
    if (name.is_text()) test = find_test(name.bytes());
    if (test == nullptr) {
      context.fail(callee + ": there is no test '" + (name.is_text() ? name.bytes() : name.type_name()) + "'");
    }
  }
  return [&context, choice, path, test, args](const Value& item) mutable {
    const Value subject = attribute_path(context, item, path);
    const bool matches = test != nullptr ? run_test(context, *test, subject, args) : subject.truth();
    return matches == choice.keep_matching ? std::optional<Value>(item) : std::nullopt;
  };
}

Value choose(Context& context, const Value& input, const Bound& args, Choice choice) {
  return lazy(context, input, args.all(), [&context, callee = args.callee(), all = args.all(), choice] {
    return choice_step(context, callee, all, choice);
  });
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
