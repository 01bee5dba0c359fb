// How the process that starts the ranks and the ranks of a host find their board. Used by the two files of ranks.h.
#pragma once

#include <signal.h>

#include <array>
#include <string>

namespace sluice::app {

// Set by start_ranks for its ranks; without it the launcher's job gives the name.
constexpr const char* kBoardVariable = "SLUICE_RANKS_BOARD";
// Not empty when what rank 0 reads is typed at the starter's terminal.
constexpr const char* kTypedVariable = "SLUICE_RANKS_TYPED";
// Numbers of the signals that the starter was told to ignore (nohup): mpirun's ranks would not.
constexpr const char* kIgnoredVariable = "SLUICE_RANKS_IGNORED";

// What asks a process to end.
constexpr std::array<int, 4> kEndingSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

std::string board_name();

// Whether a launcher has started this process, as one of several or alone.
bool is_launched();

}  // namespace sluice::app
