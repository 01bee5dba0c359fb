// A command under --trace. Called by main.cc.
#pragma once

#include "cli/options.h"

namespace sluice::cli {

// Calls `command` with the trace that --trace asks for, on rank `rank`, and writes it when the command ends, also when
// by an exception. Throws Error(resources) when the file cannot be written, unless the command failed already.
int traced(Options options, int rank, int (*command)(const Options&));

}  // namespace sluice::cli
