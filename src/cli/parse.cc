#include "cli/parse.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "cli/config_file.h"
#include "cli/config_yaml.h"
#include "cli/flags.h"
#include "cli/other_names.h"
#include "cli/terminal.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

// Adds one flag of the table to a command.
struct AddOption {
  CLI::App* app;
  const Flag& flag;

  CLI::Option* operator()(bool* v) const {
    std::string names(flag.names);
    return app->add_flag(names, *v, flag.help);
  }
  CLI::Option* operator()(std::optional<bool>* v) const {
    const auto is_switch = [](const std::string& text) {
      try {
        CLI::detail::to_flag_value(text);
        return std::string();
      } catch (const std::exception&) {
        return "'" + text + "' is neither true nor false";
      }
    };
    CLI::Option* option = app->add_flag_function(
        std::string(flag.names), [v](std::int64_t times) { *v = times > 0; }, flag.help);
    return option->check(is_switch, "", "");
  }
  CLI::Option* operator()(const Count& v) const { return number(v); }
  CLI::Option* operator()(const Real& v) const { return number(v); }
  template <class Number>
  CLI::Option* number(const Number& target) const {
    const std::string name = "--" + long_name(flag);
    return app->add_option_function<std::string>(
        std::string(flag.names),
        [target, name](const std::string& text) {
          try {
            set_value(target, text, name);
          } catch (const Error& e) {
            throw CLI::ValidationError(e.what(), CLI::ExitCodes::ValidationError);
          }
        },
        flag.help);
  }
  // Empty is what a script gets from a variable that is not set: `--api-key "$KEY"` would leave the door open.
  CLI::Option* operator()(std::string* v) const {
    const auto given = [](const std::string& text) { return text.empty() ? std::string("an empty value") : ""; };
    return app->add_option(std::string(flag.names), *v, flag.help)->check(given, "", "");
  }
  CLI::Option* operator()(std::vector<std::string>* v) const {
    CLI::Option* option = app->add_option(std::string(flag.names), *v, flag.help);
    if (flag.value == "LIST") return option->delimiter(',');
    return option->allow_extra_args(false);  // one value a flag, so that a text may follow freely
  }
  CLI::Option* operator()(const Foreign& v) const {
    CLI::Option* option = nullptr;
    if (flag.value.empty()) {
      option = app->add_flag_callback(
          std::string(flag.names),
          [v] {
            v.uses->push_back({v.flag, ""});
          },
          flag.help);
    } else if (flag.value.substr(flag.value.size() - 1) == ".") {  // "NAMES...": several words
      option = app->add_option_function<std::vector<std::string>>(
          std::string(flag.names),
          [v](const std::vector<std::string>& words) {
            std::string text;
            for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
            v.uses->push_back({v.flag, text});
          },
          flag.help);
    } else {
      option = app->add_option_function<std::string>(
          std::string(flag.names),
          [v](const std::string& text) {
            v.uses->push_back({v.flag, text});
          },
          flag.help);
    }
    return option->group("Flags of SGLang");
  }
};

void add_flags(CLI::App* app, std::string_view command, const std::vector<Flag>& table, bool from_environment) {
  for (const Flag& flag : table) {
    if (!applies_to(flag, command)) continue;
    CLI::Option* option = std::visit(AddOption{app, flag}, flag.target);
    if (!flag.value.empty()) option->type_name(std::string(flag.value));
    if (from_environment) option->envname(environment_name(flag));
    if (flag.required) option->required();
  }
}

// "eval.gsm8k" for the deepest command on the line; empty when there is none.
std::string chosen_command(const CLI::App& app) {
  std::string name;
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    name += (name.empty() ? "" : ".") + at->get_name();
  }
  return name;
}

Parsed finished(const std::string& text, int code) {
  Parsed parsed;
  parsed.done = true;
  parsed.exit_code = code;
  parsed.text = text;
  return parsed;
}

// Each command has Options of its own: environment and config file set the flags of all commands, also of those that
// are not on the line.
using OptionsByCommand = std::map<std::string, Options, std::less<>>;

// `on_line` is the command that will run: only its flags are read from the environment, where a variable may be set for
// another one.
void add_commands(CLI::App& app, std::string_view on_line, OptionsByCommand& options) {
  std::map<std::string, CLI::App*, std::less<>> added;
  for (const Command& command : command_table()) {
    const std::string name(command.name);
    const std::size_t dot = name.find('.');
    CLI::App* parent = dot == std::string::npos ? &app : added.at(name.substr(0, dot));
    CLI::App* sub =
        parent->add_subcommand(name.substr(dot == std::string::npos ? 0 : dot + 1), std::string(command.help));
    added[name] = sub;
    add_flags(sub, command.name, flag_table(options[name]), on_line == command.name);
    if (dot != std::string::npos) parent->require_subcommand(1);
  }
}

// The command that the line names, before it is parsed: the first word of the table, and the one after it if that makes
// a nested command.
std::string command_on_line(int argc, const char* const* argv) {
  const auto known = [](const std::string& name) {
    return std::any_of(command_table().begin(), command_table().end(),
                       [&](const Command& c) { return c.name == name; });
  };
  for (int i = 1; i < argc; ++i) {
    if (!known(argv[i])) continue;
    const std::string nested = i + 1 < argc ? std::string(argv[i]) + "." + argv[i + 1] : "";
    return known(nested) ? nested : argv[i];
  }
  return "";
}

// "eval.gsm8k" as the library has it.
std::vector<std::string> parents_of(const std::string& command) {
  std::vector<std::string> parents;
  for (std::size_t begin = 0; begin <= command.size();) {
    const std::size_t dot = std::min(command.find('.', begin), command.size());
    parents.push_back(command.substr(begin, dot - begin));
    begin = dot + 1;
  }
  return parents;
}

// A file that ends in .yaml or .yml has the flags of the command on the line, without sections; any other one is TOML
// with a section for each command. Every name is checked here, where its line is known.
class ConfigReader : public CLI::ConfigTOML {
 public:
  ConfigReader(ConfigFile& file, const std::string& command) : file_(file), command_(command) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& stream) const override {
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    try {
      return file_.is_yaml() ? from_yaml(text) : from_toml(text);
    } catch (const Error& e) {
      throw CLI::ConfigError(e.what());
    }
  }

 private:
  std::vector<CLI::ConfigItem> from_yaml(const std::string& text) const {
    std::vector<CLI::ConfigItem> found;
    std::set<std::string> seen;
    for (YamlFlag& flag : read_yaml_flags(text, file_.path)) {
      file_.lines.try_emplace(command_ + "." + flag.name, flag.line);
      check_config_value(file_, command_, flag.name, flag.values, seen);
      found.push_back({parents_of(command_), flag.name, std::move(flag.values)});
    }
    return found;
  }

  std::vector<CLI::ConfigItem> from_toml(const std::string& text) const {
    file_.lines = toml_lines(text, file_.path);
    std::set<std::string> seen;
    std::istringstream stream(text);
    std::vector<CLI::ConfigItem> found = CLI::ConfigTOML::from_config(stream);
    for (const CLI::ConfigItem& item : found) {
      std::string section;
      for (const std::string& parent : item.parents) section += (section.empty() ? "" : ".") + parent;
      if (item.name == "--") continue;  // the end of a section
      if (item.name != "++") {
        check_config_value(file_, section, item.name, item.inputs, seen);
      } else if (file_.lines.contains(section)) {  // the library opens "eval" for "eval.gsm8k" too
        check_config_section(file_, section);
      }
    }
    return found;
  }

  ConfigFile& file_;
  std::string command_;
};

// "--api-key=" would take the next word for its value.
std::string flag_without_value(int argc, const char* const* argv) {
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      return std::string(word.substr(0, word.size() - 1));
  }
  return "";
}

// "SLUICE_API_KEY" for a variable without a value that the library takes for none, unless the flag is set elsewhere.
std::string empty_variable(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  for (const CLI::Option* option : at->get_options()) {
    std::string variable = option->get_envname();
    const char* value = variable.empty() || option->count() > 0 ? nullptr : std::getenv(variable.c_str());
    if (value != nullptr && *value == '\0') return variable;
  }
  return "";
}

// "; --max-num-seqs: it is --max-running-requests here" for flags of other servers that are none here.
std::string other_names_note(int argc, const char* const* argv, const std::string& message) {
  std::string note;
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string word(argv[i]);
    const std::string advice = word.starts_with('-') ? name_here(word) : "";
    const std::string name = word.substr(0, word.find('='));
    if (!advice.empty() && message.find(name) != std::string::npos) note += "; " + name + ": " + advice;
  }
  return note;
}

// "; SLUICE_THREADS is set to "junk"" for the variables that a message may be about.
std::string environment_note(const std::string& message, const std::string& command) {
  Options unused;
  std::string note;
  for (const Flag& flag : flag_table(unused)) {
    const std::string variable = environment_name(flag);
    const char* value = variable.empty() || !applies_to(flag, command) ? nullptr : std::getenv(variable.c_str());
    if (value == nullptr || message.find("--" + long_name(flag)) == std::string::npos) continue;
    note += "; " + variable + " is set to \"" + value + "\"";
  }
  return note;
}

}  // namespace

Parsed parse(int argc, const char* const* argv, const std::string& version) {
  OptionsByCommand options;
  CLI::App app("Sluice runs mixture-of-experts language models from Hugging Face checkpoints.", "sluice");
  app.set_version_flag("--version", version);
  const std::string on_line = command_on_line(argc, argv);
  if (const std::string name = flag_without_value(argc, argv); !name.empty()) {
    return finished(fmt::format("sluice: {0}= has nothing behind it; expected {0}=VALUE or {0} VALUE", name), 2);
  }
  ConfigFile file = config_on_line(argc, argv);
  app.set_config("--config", "", "Read flags from a TOML file, or from YAML as SGLang has it (.yaml)");
  app.config_formatter(std::make_shared<ConfigReader>(file, on_line));
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.require_subcommand(1);
  app.fallthrough();
  add_commands(app, on_line, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      std::ostringstream text, ignored;
      app.exit(e, text, ignored);
      return finished(text.str(), 0);
    }
    if (argc <= 1) return finished(app.help(), 2);
    const std::string chosen = chosen_command(app);
    std::string command = chosen;
    std::replace(command.begin(), command.end(), '.', ' ');
    const std::string help = "sluice " + command + (command.empty() ? "--help" : " --help") + " lists the flags";
    const std::string notes = other_names_note(argc, argv, e.what()) + environment_note(e.what(), chosen) +
                              config_note(file, e.what(), chosen);
    return finished("sluice: " + printable(e.what() + notes) + "\n" + help, 2);
  }
  if (const std::string name = empty_variable(app); !name.empty()) {
    return finished(fmt::format("sluice: {0} is set to nothing; expected a value, or {0} not set (unset {0})", name),
                    2);
  }
  const std::string command = chosen_command(app);
  Parsed parsed;
  parsed.options = options[command];
  parsed.options.command = command;
  if (command == "help") return finished(parsed.options.markdown ? flags_markdown() : app.help(), 0);
  return parsed;
}

}  // namespace sluice::cli
