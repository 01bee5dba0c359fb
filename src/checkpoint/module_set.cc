#include "checkpoint/module_set.h"

#include <algorithm>

namespace sluice::ckpt {
namespace {

constexpr std::string_view kExpression = "re:";

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

}  // namespace

// One point of return is enough: a later "*" can always take over what an earlier one would have to.
bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0;
  std::size_t star = std::string_view::npos, star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

void ModuleSet::add(std::string_view pattern, const std::string& where) {
  if (starts_with(pattern, kExpression)) {
    expressions_.emplace_back(pattern.substr(kExpression.size()), where);
  } else if (pattern.find_first_of("*?") != std::string_view::npos) {
    globs_.emplace_back(pattern);
  } else if (!pattern.empty()) {
    names_.emplace(pattern);
    lengths_.set(std::min(pattern.size(), lengths_.size() - 1));
    for (std::size_t dot = pattern.find('.'); dot != std::string_view::npos; dot = pattern.find('.', dot + 1)) {
      parents_.emplace(pattern.substr(0, dot));
    }
  }
}

bool ModuleSet::contains(std::string_view module) const {
  for (std::size_t begin = 0; begin < module.size() && !names_.empty();) {
    for (std::size_t end = begin; end < module.size();) {
      end = std::min(module.find('.', end + 1), module.size());
      if (!lengths_.test(std::min(end - begin, lengths_.size() - 1))) continue;
      if (names_.find(module.substr(begin, end - begin)) != names_.end()) return true;
    }
    const std::size_t dot = module.find('.', begin);
    begin = dot == std::string_view::npos ? module.size() : dot + 1;
  }
  // "*.mlp.gate.*" is written with the tensors of the module in mind.
  const std::string weight = globs_.empty() ? std::string() : std::string(module) + ".weight";
  for (const std::string& glob : globs_) {
    if (glob_matches(glob, module) || glob_matches(glob, weight)) return true;
  }
  if (expressions_.empty()) return false;
  text::RegexScratch scratch;
  text::TextSpan match;
  return std::any_of(expressions_.begin(), expressions_.end(), [&](const text::Regex& expression) {
    return expression.search(scratch, module, 0, match) && match.begin == 0;
  });
}

bool ModuleSet::contains_child_of(std::string_view module) const { return parents_.find(module) != parents_.end(); }

}  // namespace sluice::ckpt
