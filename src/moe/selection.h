// Choosing the runner of a layer: every runner is asked, and the whole table of answers is kept (architecture 4.6).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "moe/runner.h"

namespace sluice {

struct Candidate {
  const Runner* runner = nullptr;
  Verdict verdict;
};

struct Selection {
  const Runner* chosen = nullptr;
  std::vector<Candidate> table;  // in order of preference
};

// Asks `runners`, given in order of preference, for `problem`. `wanted` is "auto" or a runner's name. Throws
// Error(unsupported) listing all candidates with their reasons when none fits, and Error(usage) for an unknown name.
Selection select_runner(const std::vector<const Runner*>& runners, const Problem& problem, std::string_view wanted);

// One line a candidate: "name  yes|no  reason".
std::string describe(const Selection& selection);

}  // namespace sluice
