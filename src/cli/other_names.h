// Flags of vLLM and llama.cpp that are no flags here: what to say instead. For the message about an unknown flag.
#pragma once

#include <string>

namespace sluice::cli {

// "it is --context-length here", or empty. `flag` as it was given, with or without "--" and "=VALUE".
std::string name_here(const std::string& flag);

}  // namespace sluice::cli
