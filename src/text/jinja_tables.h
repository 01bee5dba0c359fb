// Where each table of built-ins is defined: one function a source file. Read by jinja_builtins.cc and nothing else.
#pragma once

#include <span>

#include "text/jinja_builtins.h"

namespace sluice::text::jinja {

std::span<const Filter> text_filters();      // jinja_filters_text.cc: trim, replace, indent, join, ...
std::span<const Filter> sequence_filters();  // jinja_filters_sequence.cc: first, sort, unique, batch, ...
std::span<const Filter> choice_filters();    // jinja_filters_choice.cc: map, select, reject, ...
std::span<const Filter> value_filters();     // jinja_filters_value.cc: default, int, round, tojson, ...
std::span<const Test> tests();               // jinja_tests.cc

}  // namespace sluice::text::jinja
