// What a --config file holds, with the lines on which it does: for messages that name file and line. Called by
// parse.cc, which reads the file.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

struct ConfigFile {
  std::string path;                               // as the command line names it; empty when there is none
  std::map<std::string, int, std::less<>> lines;  // of "serve" (a section) and "serve.port" (a flag), from 1

  bool is_yaml() const;
};

// The file that --config names on the line, not read yet.
ConfigFile config_on_line(int argc, const char* const* argv);

// Lines of the sections and keys of a TOML file. Throws Error(usage) with `path` and line for one that comes twice.
std::map<std::string, int, std::less<>> toml_lines(std::string_view text, const std::string& path);

// Throws Error(usage) with file and line unless `name` is a flag of the command `section` ("eval.gsm8k"). Returns the
// flag's long name, which `name` may be an alias of.
std::string check_config_flag(const ConfigFile& file, const std::string& section, const std::string& name);
// Throws for a flag without a value (the default would be a guess) and for one that `seen` has under another name.
void check_config_value(const ConfigFile& file, const std::string& section, const std::string& name,
                        const std::vector<std::string>& values, std::set<std::string>& seen);
// The same for a section without a flag.
void check_config_section(const ConfigFile& file, const std::string& section);

// "; --port is set in serve.toml, line 3" for the flags of `command` that a message may be about.
std::string config_note(const ConfigFile& file, const std::string& message, const std::string& command);

}  // namespace sluice::cli
