// Command line > Options. The only file that knows the CLI library is parse.cc.
#pragma once

#include <string>

#include "cli/options.h"

namespace sluice::cli {

struct Parsed {
  Options options;
  bool done = false;  // --help or --version was asked for, or nothing was: print `text` and exit with `exit_code`
  int exit_code = 0;
  std::string text;
};

// `version` is the line of --version. Wrong usage gives done with exit code 2 and the message.
Parsed parse(int argc, const char* const* argv, const std::string& version);

}  // namespace sluice::cli
