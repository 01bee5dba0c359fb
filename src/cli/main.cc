// Entry point: command line > command > exit code. Errors become one line on standard error.
#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>

#include "app/version.h"
#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/terminal.h"
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
    {"serve", sluice::cli::serve_command},
    {"verify", sluice::cli::verify_command},
    {"layer", sluice::cli::layer_command},
    {"eval.gsm8k", sluice::cli::eval_gsm8k_command},
    {"bench.moe", sluice::cli::bench_moe_command},
    {"bench.serve", sluice::cli::bench_serve_command},
    {"check", sluice::cli::check_command},
    {"explain", sluice::cli::explain_command},
    {"quantize", sluice::cli::quantize_command},
    {"doctor", sluice::cli::doctor_command},
};

int dispatch(const Options& options) {
  for (const Entry& entry : kEntries) {
    if (entry.name == options.command) return entry.call(options);
  }
  sluice::fail(sluice::ErrorCode::usage, "no command \"" + options.command + "\"", "", "sluice --help lists them");
}

int run(int argc, char** argv) {
  const sluice::cli::Parsed parsed = sluice::cli::parse(argc, argv, sluice::app::version_text());
  if (!parsed.done) return dispatch(parsed.options);
  const std::string text = parsed.text.ends_with('\n') ? parsed.text.substr(0, parsed.text.size() - 1) : parsed.text;
  if (parsed.exit_code == 0) {
    fmt::print("{}\n", text);
  } else {
    sluice::cli::say(text);
  }
  return parsed.exit_code;
}

// What is still in the buffer has to reach the reader before success may be reported.
int flushed(int code) {
  const bool lost = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !lost) return code;
  sluice::cli::say("sluice: standard output could not be written; expected a file with free space or an open pipe");
  return static_cast<int>(sluice::ErrorCode::resources);
}

}  // namespace

int main(int argc, char** argv) {
  using sluice::cli::printable;
  using sluice::cli::say;
  try {
    return flushed(run(argc, argv));
  } catch (const sluice::Error& e) {
    say("sluice: " + printable(e.what()));
    return e.exit_code();
  } catch (const std::bad_alloc&) {
    say("sluice: out of memory; choose a smaller model, context or --max-running-requests");
    return static_cast<int>(sluice::ErrorCode::resources);
  } catch (const std::filesystem::filesystem_error& e) {
    say("sluice: " + printable(e.what()));
    return static_cast<int>(sluice::ErrorCode::bad_input);
  } catch (const std::system_error& e) {  // from fmt::print, when standard output is full or closed
    say("sluice: " + printable(e.what()) + "; expected a file with free space or an open pipe");
    return static_cast<int>(sluice::ErrorCode::resources);
  } catch (const std::exception& e) {
    say("sluice: internal error: " + printable(e.what()) + "; please report it");
    return static_cast<int>(sluice::ErrorCode::check_failed);
  }
}
