// Finds stop strings in text that arrives in parts, and holds back what may become one.
//
// One for each sequence being generated; not thread-safe. The result does not depend on how the text is cut into parts:
// the stop string that is complete first ends the text, and of several complete at the same byte the longest counts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text {

class StopMatcher {
 public:
  // Throws Error(usage) for an empty stop string. Without stop strings every text passes at once.
  explicit StopMatcher(const std::vector<std::string>& stops);

  // Text that can be shown now. Once a stop string is found it ends before it, and later calls give nothing.
  std::string push(std::string_view text);

  // What was held back and did not become a stop string; to be called at the end.
  std::string flush();

  bool found() const { return found_ >= 0; }
  int found_index() const { return found_; }  // in the list of stop strings, -1 before one is found

 private:
  // One stop string, and how much of it the text so far ends with (the automaton of Knuth, Morris and Pratt).
  struct Stop {
    std::string text;
    std::vector<std::size_t> border;  // longest proper border of the first i + 1 bytes
    std::size_t matched = 0;
  };

  static void advance(Stop& stop, char byte);

  std::vector<Stop> stops_;
  std::string held_;
  int found_ = -1;
};

}  // namespace sluice::text
