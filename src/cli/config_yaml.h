// Flags from a YAML file, as SGLang's --config has them: a flat map from long names to values. Called by parse.cc.
#pragma once

#include <string>
#include <vector>

namespace sluice::cli {

struct YamlFlag {
  std::string name;                 // with dashes for underscores
  std::vector<std::string> values;  // one, or those of a list; none for null; a switch has "true" or "false"
  int line;                         // from 1
};

// Throws Error(usage) naming file and line for anything that is no such map.
std::vector<YamlFlag> read_yaml_flags(const std::string& text, const std::string& path);

}  // namespace sluice::cli
