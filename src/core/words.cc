#include "core/words.h"

namespace sluice {

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::size_t space = list.find(' ');
    if (list.substr(0, space) == word) return true;
    list = space == std::string_view::npos ? std::string_view() : list.substr(space + 1);
  }
  return false;
}

std::string commas(std::string_view words) {
  std::string text;
  for (const char c : words) text += c == ' ' ? std::string(", ") : std::string(1, c);
  return text;
}

}  // namespace sluice
