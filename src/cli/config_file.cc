#include "cli/config_file.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/flags.h"
#include "cli/other_names.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string_view unquoted(std::string_view text) {
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  return quoted ? text.substr(1, text.size() - 2) : text;
}

// "--port" > "port", for every long name of a flag.
bool has_name(const Flag& flag, std::string_view name) {
  std::string_view rest = flag.names;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view one = rest.substr(0, comma);
    const std::size_t word = one.find_first_not_of("-!");
    if (word != std::string_view::npos && one.substr(word) == name) return true;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return false;
}

bool is_command(std::string_view name) {
  return std::any_of(command_table().begin(), command_table().end(),
                     [&](const Command& command) { return command.name == name; });
}

[[noreturn]] void bad(const ConfigFile& file, const std::string& key, const std::string& what,
                      const std::string& expected) {
  const auto line = file.lines.find(key);
  const std::string where = line == file.lines.end() ? file.path : fmt::format("{}, line {}", file.path, line->second);
  fail(ErrorCode::usage, where + ": " + what, expected);
}

}  // namespace

bool ConfigFile::is_yaml() const { return path.ends_with(".yaml") || path.ends_with(".yml"); }

ConfigFile config_on_line(int argc, const char* const* argv) {
  constexpr std::string_view kJoined = "--config=";
  ConfigFile file;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with(kJoined)) file.path = word.substr(kJoined.size());
    if (word == "--config" && i + 1 < argc) file.path = argv[i + 1];
  }
  return file;
}

std::map<std::string, int, std::less<>> toml_lines(std::string_view text, const std::string& path) {
  std::map<std::string, int, std::less<>> lines;
  std::string section;
  bool in_list = false;
  const auto add = [&](const std::string& name, int number) {
    const auto [first, fresh] = lines.try_emplace(name, number);
    if (fresh) return;
    fail(ErrorCode::usage, fmt::format("{}, line {}: {} stands in line {} too", path, number, name, first->second),
         "each section and each flag once");
  };
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    if (in_list) {
      in_list = line.back() != ']';
      continue;
    }
    if (line.front() == '[' && line.back() == ']') {
      section = trimmed(line.substr(1, line.size() - 2));
      add(section, number);
      continue;
    }
    const std::size_t equals = std::min(line.find('='), line.size());
    const std::string_view key = unquoted(trimmed(line.substr(0, equals)));
    const std::string_view value = trimmed(line.substr(std::min(equals + 1, line.size())));
    in_list = value.starts_with('[') && !value.ends_with(']') && value.find(']') == std::string_view::npos;
    add(section.empty() ? std::string(key) : section + "." + std::string(key), number);
  }
  return lines;
}

void check_config_section(const ConfigFile& file, const std::string& section) {
  if (!is_command(section)) bad(file, section, "[" + section + "] is no command", "a section like [serve]");
}

std::string check_config_flag(const ConfigFile& file, const std::string& section, const std::string& name) {
  if (section.empty()) bad(file, name, "\"" + name + "\" stands in no section", "a section like [serve] above it");
  check_config_section(file, section);
  Options unused;
  for (const Flag& flag : flag_table(unused)) {
    if (applies_to(flag, section) && has_name(flag, name)) return long_name(flag);
  }
  std::string command = section;
  std::replace(command.begin(), command.end(), '.', ' ');
  const std::string what = "\"" + name + "\" is no flag of sluice " + command;
  if (const std::string advice = name_here(name); !advice.empty()) {
    bad(file, section + "." + name, what + ": " + advice, "");
  }
  bad(file, section + "." + name, what, "one of those that sluice " + command + " --help lists");
}

void check_config_value(const ConfigFile& file, const std::string& section, const std::string& name,
                        const std::vector<std::string>& values, std::set<std::string>& seen) {
  const std::string flag = check_config_flag(file, section, name);
  if (values.empty() || (values.size() == 1 && values.front().empty())) {
    bad(file, section + "." + name, "\"" + name + "\" has an empty value", "a value, or no such line");
  }
  if (!seen.insert(section + "." + flag).second) {
    bad(file, section + "." + name, "\"" + name + "\" comes twice, maybe under its other name", "each flag once");
  }
}

std::string config_note(const ConfigFile& file, const std::string& message, const std::string& command) {
  std::string note;
  for (const auto& [key, line] : file.lines) {
    if (key.size() <= command.size() || !key.starts_with(command + ".")) continue;
    const std::string name = key.substr(command.size() + 1);
    Options unused;
    for (const Flag& flag : flag_table(unused)) {
      if (!applies_to(flag, command) || !has_name(flag, name)) continue;
      if (message.find("--" + long_name(flag)) == std::string::npos) continue;
      note += fmt::format("; {} is set in {}, line {}", name, file.path, line);
      break;
    }
  }
  return note;
}

}  // namespace sluice::cli
