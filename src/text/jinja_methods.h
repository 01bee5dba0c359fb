// Methods of Python's str, list, tuple, dict and range that templates call.
//
// Called by attribute access. Methods that would change a list or a dict are refused, as the immutable sandbox does.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja_builtins.h"

namespace sluice::text::jinja {

struct Method {
  std::string_view name;
  std::string_view parameters;  // as for filters
  Value (*run)(Context&, const Value& self, const Bound& args);
};

std::span<const Method> text_methods();        // jinja_methods_text.cc
std::span<const Method> text_query_methods();  // jinja_methods_query.cc

// `object.name` as a callable value; nullopt when the type has no such method.
std::optional<Value> bind_method(Context& context, const Value& object, std::string_view name);

}  // namespace sluice::text::jinja
