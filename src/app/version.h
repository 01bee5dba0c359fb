// The line of `--version`: version, how it was built, and which instruction set is in use on this machine.
#pragma once

#include <string>

namespace sluice::app {

std::string version_text();
std::string version_number();  // "0.1.0"

}  // namespace sluice::app
