#include "text/jinja_builtins.h"

#include <algorithm>
#include <span>

#include "text/jinja_context.h"
#include "text/jinja_tables.h"

namespace sluice::text::jinja {
namespace {

// Takes the next name off a list separated by spaces.
std::string_view next_parameter(std::string_view& rest) {
  const std::size_t end = std::min(rest.find(' '), rest.size());
  const std::string_view name = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return name;
}

bool is_optional(std::string_view parameter) { return !parameter.empty() && parameter.back() == '?'; }
std::string_view bare(std::string_view parameter) {
  if (is_optional(parameter)) parameter.remove_suffix(1);
  return parameter;
}

std::string parameter_name(std::string_view parameters, std::size_t i) {
  std::string_view name = next_parameter(parameters);
  for (; i > 0; --i) name = next_parameter(parameters);
  return std::string(bare(name));
}

template <class Row>
const Row* find_row(std::initializer_list<std::span<const Row>> tables, std::string_view name) {
  for (const auto& table : tables) {
    for (const Row& row : table) {
      if (row.name == name) return &row;
    }
  }
  return nullptr;
}

}  // namespace

Bound::Bound(Context& context, const std::string& callee, std::string_view parameters, CallArgs& args)
    : context_(context), callee_(callee), parameters_(parameters), args_(&args) {
  for (const Value& value : args.positional) context.charge_reading(value);
  for (const auto& [name, value] : args.named) context.charge_reading(value);
  if (parameters == "*") return;
  std::size_t count = 0;
  for (std::string_view rest = parameters; !rest.empty(); ++count) next_parameter(rest);
  if (args.positional.size() > count) {
    context.fail(callee + " takes at most " + std::to_string(count) + " arguments, not " +
                 std::to_string(args.positional.size()));
  }
  for (std::size_t i = 0; i < args.positional.size(); ++i) values_[i] = args.positional[i];
  place_named(parameters);
  std::size_t i = 0;
  for (std::string_view rest = parameters; !rest.empty(); ++i) {
    const std::string_view name = next_parameter(rest);
    if (!is_optional(name) && !values_[i]) context.fail(callee + " needs the argument '" + std::string(name) + "'");
  }
}

void Bound::place_named(std::string_view parameters) {
  for (const auto& [name, value] : args_->named) {
    std::size_t i = 0;
    std::string_view rest = parameters;
    while (!rest.empty() && (bare(next_parameter(rest)) != name || name == "_")) {
      ++i;
      if (rest.empty()) i = kMaxParameters;
    }
    if (parameters.empty() || i >= kMaxParameters) context_.fail(callee_ + " has no argument named '" + name + "'");
    if (values_[i]) context_.fail(callee_ + " got the argument '" + name + "' twice");
    values_[i] = value;
  }
}

std::int64_t Bound::integer(std::size_t i, std::int64_t otherwise) const {
  if (!has(i)) return otherwise;
  if (!at(i).is_integral()) wrong_type(i, "an integer");
  return at(i).integer();
}

const std::string& Bound::text(std::size_t i) const {
  if (!has(i) || !at(i).is_text()) wrong_type(i, "a string");
  return at(i).bytes();
}

void Bound::wrong_type(std::size_t i, const std::string& expected) const {
  const std::string found = has(i) ? at(i).type_name() : "nothing";
  context_.fail(callee_ + ": argument '" + parameter_name(parameters_, i) + "' must be " + expected + ", not " + found);
}

const Filter* find_filter(std::string_view name) {
  return find_row<Filter>({text_filters(), sequence_filters(), choice_filters(), value_filters()}, name);
}

const Test* find_test(std::string_view name) { return find_row<Test>({tests()}, name); }

bool is_known_elsewhere(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "filesizeformat", "groupby",   "pprint",   "random",  "slice",      "striptags", "truncate", "urlencode",
      "urlize",         "wordcount", "wordwrap", "xmlattr", "cycler",     "joiner",    "lipsum",   "block",
      "extends",        "include",   "import",   "from",    "autoescape", "trans",     "do",       "debug"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

Value run_filter(Context& context, const Filter& filter, const Value& input, CallArgs& args) {
  context.charge_reading(input);
  const Bound bound(context, "filter '" + std::string(filter.name) + "'", filter.parameters, args);
  return filter.run(context, input, bound);
}

bool run_test(Context& context, const Test& test, const Value& input, CallArgs& args) {
  context.charge_reading(input);
  const Bound bound(context, "test '" + std::string(test.name) + "'", test.parameters, args);
  return test.run(context, input, bound);
}

}  // namespace sluice::text::jinja
