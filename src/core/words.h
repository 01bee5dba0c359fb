// Lists of names written as words separated by one space, as constant tables of flags and formats have them.
//
// Used by app and cli. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

bool has_word(std::string_view list, std::string_view word);

// "a b c" > "a, b, c", for messages.
std::string commas(std::string_view words);

}  // namespace sluice
