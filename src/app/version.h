// What this build is called: the line of `--version`, and its parts.
#pragma once

#include <string>

namespace sluice::app {

std::string version_text();    // of the build, and the instruction sets of this machine
std::string build_text();      // "0.1.0 (GNU 12.2.0, Release)": the same on every machine
std::string version_number();  // "0.1.0"

}  // namespace sluice::app
