// The one table of flags: command-line parsing, environment variables, config keys, --help and docs/flags.md come from
// it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cli/options.h"

namespace sluice::cli {

struct Count {  // an integer that accepts the suffixes k M G (powers of 1000) and K (1024), as vLLM does
  std::int64_t* value;
  std::int64_t least = 0;
  std::int64_t most = std::int64_t{1} << 31;
};
struct Real {  // never NaN
  double* value;
  double least;
  double most;
};
struct Foreign {  // a flag of SGLang's; each use is appended
  std::vector<SglangUse>* uses;
  const SglangFlag* flag;
};
using Target = std::variant<bool*, std::optional<bool>*, Count, Real, std::string*, std::vector<std::string>*, Foreign>;

struct Flag {
  std::string_view names;     // "-n,--max-new-tokens"; a positional argument has no dash
  std::string_view value;     // placeholder in the help, "" for a switch
  std::string_view commands;  // space-separated, "eval.gsm8k" for a nested one
  std::string help;
  Target target;
  bool required = false;
};

struct Command {
  std::string_view name;  // "run", "eval.gsm8k"
  std::string_view help;
};

// In the order of the help. The flags' targets point into `options`.
std::vector<Flag> flag_table(Options& options);
const std::vector<Command>& command_table();

// "SLUICE_MAX_NEW_TOKENS" for "-n,--max-new-tokens"; empty for positional arguments.
std::string environment_name(const Flag& flag);
// "max-new-tokens": the long name without dashes, also the key in a config file.
std::string long_name(const Flag& flag);
bool applies_to(const Flag& flag, std::string_view command);

// "8k" > 8000, "8K" > 8192. Throws Error(usage) naming the flag.
std::int64_t parse_count(std::string_view text, std::string_view flag);
// Reads a value for a flag and stores it. Throws Error(usage) naming the flag and its bounds.
void set_value(const Count& target, std::string_view text, std::string_view flag);
void set_value(const Real& target, std::string_view text, std::string_view flag);

// --threads as an int. Throws Error(usage) outside 0 to 1024.
int thread_count(std::int64_t threads);

// The page docs/flags.md.
std::string flags_markdown();

}  // namespace sluice::cli
