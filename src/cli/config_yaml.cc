#include "cli/config_yaml.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "cli/terminal.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

[[noreturn]] void bad_yaml(int line, const std::string& what) {
  fail(ErrorCode::usage, fmt::format("--config, line {}: {}", line + 1, printable(what)), "lines like `port: 30000`");
}

std::vector<std::string> values_of(const YAML::Node& node) {
  if (node.IsScalar()) return {node.Scalar()};
  std::vector<std::string> values;
  if (!node.IsSequence()) bad_yaml(node.Mark().line, "neither a value nor a list of values");
  for (const YAML::Node& entry : node) {
    if (!entry.IsScalar()) bad_yaml(entry.Mark().line, "a list inside a list");
    values.push_back(entry.Scalar());
  }
  return values;
}

}  // namespace

std::vector<std::pair<std::string, std::vector<std::string>>> read_yaml_flags(std::istream& file) {
  std::vector<std::pair<std::string, std::vector<std::string>>> flags;
  YAML::Node root;
  try {
    root = YAML::Load(file);
  } catch (const YAML::Exception& e) {
    bad_yaml(e.mark.line, e.msg);
  }
  if (root.IsNull()) return flags;
  if (!root.IsMap()) bad_yaml(root.Mark().line, "the file is no map");
  for (const auto& entry : root) {
    if (!entry.first.IsScalar()) bad_yaml(entry.first.Mark().line, "a name that is no word");
    std::string name = entry.first.Scalar();
    std::replace(name.begin(), name.end(), '_', '-');
    if (entry.second.IsNull()) continue;  // as if it were not there
    flags.emplace_back(name, values_of(entry.second));
  }
  return flags;
}

}  // namespace sluice::cli
