// How the process that starts the ranks and the ranks of a host find their board. Used by the two files of ranks.h.
#pragma once

#include <string>

namespace sluice::app {

// Set by start_ranks for its ranks; without it the launcher's job gives the name.
constexpr const char* kBoardVariable = "SLUICE_RANKS_BOARD";

std::string board_name();

}  // namespace sluice::app
