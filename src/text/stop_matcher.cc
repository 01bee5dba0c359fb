#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace sluice::text {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (const std::string& text : stops) {
    if (text.empty()) fail(ErrorCode::usage, "an empty stop string", "at least one character");
    Stop stop{text, std::vector<std::size_t>(text.size(), 0), 0};
    for (std::size_t i = 1; i < text.size(); ++i) {
      std::size_t k = stop.border[i - 1];
      while (k > 0 && text[k] != text[i]) k = stop.border[k - 1];
      stop.border[i] = text[k] == text[i] ? k + 1 : 0;
    }
    stops_.push_back(std::move(stop));
  }
}

void StopMatcher::advance(Stop& stop, char byte) {
  while (stop.matched > 0 && stop.text[stop.matched] != byte) stop.matched = stop.border[stop.matched - 1];
  if (stop.text[stop.matched] == byte) ++stop.matched;
}

std::string StopMatcher::push(std::string_view text) {
  if (found()) return {};
  std::string all = std::exchange(held_, {});
  const std::size_t old = all.size();
  all.append(text);
  std::size_t held = old;  // longest end of the text that may become a stop string
  for (std::size_t i = old; i < all.size(); ++i) {
    held = 0;
    std::size_t complete = 0;
    for (std::size_t s = 0; s < stops_.size(); ++s) {
      Stop& stop = stops_[s];
      advance(stop, all[i]);
      held = std::max(held, stop.matched);
      if (stop.matched < stop.text.size() || stop.matched <= complete) continue;
      complete = stop.matched;
      found_ = static_cast<int>(s);
    }
    if (found()) {
      all.resize(i + 1 - complete);
      return all;
    }
  }
  held_ = all.substr(all.size() - held);
  all.resize(all.size() - held);
  return all;
}

std::string StopMatcher::flush() { return found() ? std::string() : std::exchange(held_, {}); }

}  // namespace sluice::text
