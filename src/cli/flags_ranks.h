// Flags about ranks: how many there are, what each holds, how tokens travel. Part of the table of flags.cc, which is
// the only caller.
#pragma once

#include <vector>

#include "cli/flags.h"

namespace sluice::cli {

void add_rank_flags(Options& options, std::vector<Flag>& table);

}  // namespace sluice::cli
