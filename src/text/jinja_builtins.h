// Tables of what a template can call by name: filters, tests and functions, and how their arguments are bound.
//
// The parser looks names up here, so that an unknown one is refused before anything is rendered; the evaluator binds
// the arguments and calls. One row a built-in: its name, its parameters and a plain function.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace sluice::text::jinja {

// Arguments of one call, in the order of the parameters.
class Bound {
 public:
  // `parameters` are the names separated by spaces. "name?" may be left out; "_?" can only be given by position, and
  // "*" alone takes everything unbound. `callee` is for messages, for example "filter 'join'".
  Bound(Context& context, const std::string& callee, std::string_view parameters, CallArgs& args);

  bool has(std::size_t i) const { return values_[i].has_value(); }
  // The argument, or `otherwise` when it was left out.
  Value get(std::size_t i, Value otherwise = Value()) const {
    if (has(i)) return *values_[i];
    return otherwise;
  }
  const Value& at(std::size_t i) const { return *values_[i]; }
  bool truth(std::size_t i, bool otherwise) const { return has(i) ? at(i).truth() : otherwise; }
  // Typed access; fails with the name of the parameter when the type is another one.
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
  const std::string& text(std::size_t i) const;
  // Left out or None counts as not given.
  bool given(std::size_t i) const { return has(i) && !at(i).is_none(); }
  const CallArgs& all() const { return *args_; }  // of "*"
  const std::string& callee() const { return callee_; }

 private:
  static constexpr std::size_t kMaxParameters = 5;
  void place_named(std::string_view parameters);
  [[noreturn]] void wrong_type(std::size_t i, const std::string& expected) const;

  Context& context_;
  std::string callee_;
  std::string_view parameters_;
  CallArgs* args_;
  std::array<std::optional<Value>, kMaxParameters> values_;
};

struct Filter {
  std::string_view name;
  std::string_view parameters;
  Value (*run)(Context&, const Value& input, const Bound& args);
};

struct Test {
  std::string_view name;
  std::string_view parameters;
  bool (*run)(Context&, const Value& input, const Bound& args);
};

// nullptr when there is no such built-in.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);
// A global function as a value: range, dict, namespace, raise_exception, strftime_now.
std::optional<Value> find_function(Context& context, std::string_view name);
// Names that Jinja knows and this engine does not: worth a message of its own.
bool is_known_elsewhere(std::string_view name);

Value run_filter(Context& context, const Filter& filter, const Value& input, CallArgs& args);
bool run_test(Context& context, const Test& test, const Value& input, CallArgs& args);

}  // namespace sluice::text::jinja
