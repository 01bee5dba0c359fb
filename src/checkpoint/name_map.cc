#include "checkpoint/name_map.h"

#include <algorithm>

namespace sluice::ckpt {
namespace {

constexpr std::string_view kLayer = "{L}";
constexpr std::string_view kExpert = "{E}";

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string_view NameMap::find(std::string_view role) const {
  for (const auto& [name, pattern] : tensors) {
    if (name == role) return pattern;
  }
  return {};
}

std::string expand(std::string_view pattern, std::int64_t layer, std::int64_t expert) {
  std::string out;
  out.reserve(pattern.size() + 8);
  while (!pattern.empty()) {
    const bool is_layer = starts_with(pattern, kLayer);
    if (is_layer || starts_with(pattern, kExpert)) {
      out += std::to_string(is_layer ? layer : expert);
      pattern.remove_prefix(kLayer.size());
    } else {
      const std::size_t plain = std::min(pattern.find(kLayer[0], 1), pattern.size());
      out += pattern.substr(0, plain);
      pattern.remove_prefix(plain);
    }
  }
  return out;
}

// Backtracking only at "*", of which patterns have one or two.
bool matches(std::string_view pattern, std::string_view name) {
  while (!pattern.empty()) {
    if (pattern.front() == '*') {
      for (std::size_t skip = 0; skip <= name.size(); ++skip) {
        if (matches(pattern.substr(1), name.substr(skip))) return true;
      }
      return false;
    }
    if (starts_with(pattern, kLayer) || starts_with(pattern, kExpert)) {
      if (name.empty() || !is_digit(name.front())) return false;
      while (!name.empty() && is_digit(name.front())) name.remove_prefix(1);
      pattern.remove_prefix(kLayer.size());
      continue;
    }
    if (name.empty() || name.front() != pattern.front()) return false;
    name.remove_prefix(1);
    pattern.remove_prefix(1);
  }
  return name.empty();
}

}  // namespace sluice::ckpt
