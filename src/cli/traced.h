// A command under --trace. Called by main.cc.
#pragma once

#include "cli/options.h"

namespace sluice::cli {

// Calls `command` with the trace that --trace asks for, on rank `rank`, and writes it when the command ends, also when
// by an exception. Throws Error(resources) when the file cannot be written, unless the command failed already; what can
// be told before it begins is told then.
int traced(Options options, int rank, int (*command)(const Options&));

// For a command that is about to end the process itself. Never throws: says on standard error what went wrong.
void leave_trace(const Options& options) noexcept;

}  // namespace sluice::cli
