// Names and values from files, made fit for error messages: of bounded length and without control characters.
//
// Used by every .cc of this folder. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace sluice::ckpt {

// Escaped as in JSON, without quotes.
std::string printable(std::string_view text);
std::string quote(std::string_view text);
// A JSON value on one line.
std::string value_text(const Json& value);
// "[768, 2048]".
std::string shape_text(std::span<const std::int64_t> shape);
// "a, b, c and 7 more": the first few of a long list.
std::string first_few(const std::vector<std::string>& names);

}  // namespace sluice::ckpt
