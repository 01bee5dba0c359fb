// Flags from a YAML file, as SGLang's --config has them: a flat map from long names to values. Called by parse.cc.
#pragma once

#include <istream>
#include <string>
#include <utility>
#include <vector>

namespace sluice::cli {

// Names with dashes for underscores, each with its values: one, or those of a list. A switch has "true" or "false".
// Throws Error(usage) naming the line for anything that is no such map.
std::vector<std::pair<std::string, std::vector<std::string>>> read_yaml_flags(std::istream& file);

}  // namespace sluice::cli
