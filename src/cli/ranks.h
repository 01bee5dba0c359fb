// Commands over several ranks: which ones there are, what all ranks must have been told alike, and what ranks above 0
// do while rank 0 runs the command.
//
// Called by main.cc.
#pragma once

#include "app/ranks.h"
#include "cli/options.h"

namespace sluice::cli {

// Whether the command runs on as many ranks as --tp says. Others take --tp as a question (explain), or not at all.
bool runs_on_ranks(const Options& options);

// Version, command and flags, but for those that may differ: where a rank's files lie, its threads, what rank 0 alone
// reads.
app::Facts rank_facts(Options options);

// Loads this rank's part of the model and follows rank 0.
int follow_command(const Options& options);

}  // namespace sluice::cli
