// The part of the flag table that is about HTTP: serve, and the commands that ask a server. Called by flags.cc.
#pragma once

#include <vector>

#include "cli/flags.h"

namespace sluice::cli {

void add_serve_flags(Options& options, std::vector<Flag>& table);

}  // namespace sluice::cli
