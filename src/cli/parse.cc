#include "cli/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "cli/config_yaml.h"
#include "cli/flags.h"
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
  CLI::Option* operator()(std::string* v) const { return app->add_option(std::string(flag.names), *v, flag.help); }
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

// A file that ends in .yaml or .yml has the flags of the command on the line, without sections.
class YamlConfig : public CLI::ConfigTOML {
 public:
  explicit YamlConfig(const std::string& command) {
    for (std::size_t begin = 0; begin <= command.size();) {
      const std::size_t dot = std::min(command.find('.', begin), command.size());
      parents_.push_back(command.substr(begin, dot - begin));
      begin = dot + 1;
    }
  }

  std::vector<CLI::ConfigItem> from_config(std::istream& file) const override {
    std::vector<CLI::ConfigItem> items;
    try {
      for (auto& [name, values] : read_yaml_flags(file)) items.push_back({parents_, name, values});
    } catch (const Error& e) {
      throw CLI::ConfigError(e.what());
    }
    return items;
  }

 private:
  std::vector<std::string> parents_;
};

bool is_yaml(std::string_view path) { return path.ends_with(".yaml") || path.ends_with(".yml"); }

bool config_is_yaml(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("--config=") && is_yaml(word)) return true;
    if (word == "--config" && i + 1 < argc && is_yaml(argv[i + 1])) return true;
  }
  return false;
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
  app.set_config("--config", "", "Read flags from a TOML file, or from YAML as SGLang has it (.yaml)");
  if (config_is_yaml(argc, argv)) app.config_formatter(std::make_shared<YamlConfig>(on_line));
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
    return finished("sluice: " + printable(e.what() + environment_note(e.what(), chosen)) + "\n" + help, 2);
  }
  const std::string command = chosen_command(app);
  Parsed parsed;
  parsed.options = options[command];
  parsed.options.command = command;
  if (command == "help") return finished(parsed.options.markdown ? flags_markdown() : app.help(), 0);
  return parsed;
}

}  // namespace sluice::cli
