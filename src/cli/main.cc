// Entry point: command line > command > exit code. Errors become one line on standard error.
#include <fmt/core.h>

#include <exception>
#include <new>
#include <string>

#include "app/version.h"
#include "cli/commands.h"
#include "cli/parse.h"
#include "core/error.h"

namespace {

using sluice::cli::Options;

struct Entry {
  std::string_view name;
  int (*call)(const Options&);
};

constexpr Entry kEntries[] = {
    {"run", sluice::cli::run_command},
    {"chat", sluice::cli::chat_command},
    {"verify", sluice::cli::verify_command},
    {"layer", sluice::cli::layer_command},
    {"eval.gsm8k", sluice::cli::eval_gsm8k_command},
    {"bench.moe", sluice::cli::bench_moe_command},
    {"doctor", sluice::cli::doctor_command},
};

int dispatch(const Options& options) {
  for (const Entry& entry : kEntries) {
    if (entry.name == options.command) return entry.call(options);
  }
  sluice::fail(sluice::ErrorCode::usage, "no command \"" + options.command + "\"", "", "sluice --help lists them");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const sluice::cli::Parsed parsed = sluice::cli::parse(argc, argv, sluice::app::version_text());
    if (parsed.done) {
      fmt::print(parsed.exit_code == 0 ? stdout : stderr, "{}{}", parsed.text, parsed.text.ends_with('\n') ? "" : "\n");
      return parsed.exit_code;
    }
    return dispatch(parsed.options);
  } catch (const sluice::Error& e) {
    fmt::print(stderr, "sluice: {}\n", e.what());
    return e.exit_code();
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "sluice: out of memory; choose a smaller model, context or --max-running-requests\n");
    return static_cast<int>(sluice::ErrorCode::resources);
  } catch (const std::exception& e) {
    fmt::print(stderr, "sluice: internal error: {}; please report it\n", e.what());
    return static_cast<int>(sluice::ErrorCode::check_failed);
  }
}
