#include "cli/config_yaml.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "cli/terminal.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

// `path` names the file, `line` counts from 0.
[[noreturn]] void bad_yaml(const std::string& path, int line, const std::string& what) {
  fail(ErrorCode::usage, fmt::format("{}, line {}: {}", path, line + 1, printable(what)), "lines like `port: 30000`");
}

std::vector<std::string> values_of(const YAML::Node& node, const std::string& path) {
  if (node.IsScalar()) return {node.Scalar()};
  std::vector<std::string> values;
  if (!node.IsSequence()) bad_yaml(path, node.Mark().line, "neither a value nor a list of values");
  for (const YAML::Node& entry : node) {
    if (!entry.IsScalar()) bad_yaml(path, entry.Mark().line, "a list inside a list");
    values.push_back(entry.Scalar());
  }
  return values;
}

}  // namespace

std::vector<YamlFlag> read_yaml_flags(const std::string& text, const std::string& path) {
  std::vector<YamlFlag> flags;
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& e) {
    bad_yaml(path, e.mark.line, e.msg);
  }
  if (root.IsNull()) return flags;
  if (!root.IsMap()) bad_yaml(path, root.Mark().line, "the file is no map");
  for (const auto& entry : root) {
    if (!entry.first.IsScalar()) bad_yaml(path, entry.first.Mark().line, "a name that is no word");
    std::string name = entry.first.Scalar();
    std::replace(name.begin(), name.end(), '_', '-');
    const bool nothing = entry.second.IsNull();  // whoever reads the flag refuses it
    flags.push_back(
        {name, nothing ? std::vector<std::string>() : values_of(entry.second, path), entry.first.Mark().line + 1});
  }
  return flags;
}

}  // namespace sluice::cli
