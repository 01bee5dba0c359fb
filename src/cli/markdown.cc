#include <algorithm>

#include "cli/flags.h"

namespace sluice::cli {
namespace {

std::string spoken(std::string_view command) {
  std::string text(command);
  std::replace(text.begin(), text.end(), '.', ' ');
  return text;
}

// "`-n`, `--max-new-tokens` N"
std::string shown_names(const Flag& flag) {
  std::string text;
  std::string_view rest = flag.names;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    std::string_view name = rest.substr(0, comma);
    if (name.front() == '!') name.remove_prefix(1);
    if (name.front() == '-') text += (text.empty() ? "`" : ", `") + std::string(name) + "`";
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return flag.value.empty() ? text : text + " " + std::string(flag.value);
}

struct DefaultText {
  std::string operator()(const bool* v) const { return *v ? "on" : "off"; }
  std::string operator()(const std::optional<bool>*) const { return ""; }  // the text says it
  std::string operator()(const Count& v) const { return *v.value < 0 ? "" : std::to_string(*v.value); }
  std::string operator()(const Real& v) const {
    if (*v.value < 0) return "";
    std::string text = std::to_string(*v.value);
    return text.substr(0, text.find_last_not_of('0') + 1);
  }
  std::string operator()(const std::string* v) const { return *v; }
  std::string operator()(const std::vector<std::string>*) const { return ""; }
  std::string operator()(const Foreign&) const { return ""; }
};

}  // namespace

std::string flags_markdown() {
  Options defaults;
  std::string page =
      "# Flags\n\n"
      "Made by `sluice help --markdown` from the table in `src/cli/flags.cc`; do not edit.\n\n"
      "A value is looked for in this order: command line, environment variable, file given with `--config` (TOML; a\n"
      "section for each command), default.\n\n"
      "| command | |\n|---|---|\n";
  for (const Command& c : command_table())
    page += "| `sluice " + spoken(c.name) + "` | " + std::string(c.help) + " |\n";
  page += "\n| flag | commands | default | environment | |\n|---|---|---|---|---|\n";
  for (const Flag& flag : flag_table(defaults)) {
    std::string row = "| " + shown_names(flag) + " | ";
    std::string_view rest = flag.commands;
    for (bool first = true; !rest.empty(); first = false) {
      const std::size_t space = rest.find(' ');
      row += (first ? "" : ", ") + spoken(rest.substr(0, space));
      rest = space == std::string_view::npos ? std::string_view() : rest.substr(space + 1);
    }
    row += " | " + std::visit(DefaultText(), flag.target) + " | `" + environment_name(flag) + "` | " + flag.help;
    page += row + " |\n";
  }
  return page;
}

}  // namespace sluice::cli
