// Entry point: command line > command > exit code. Errors become one line on standard error.
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>

#include "app/ranks.h"
#include "app/version.h"
#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/ranks.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "cli/traced.h"
#include "core/error.h"
#include "core/file.h"

namespace {

using sluice::cli::Options;
using sluice::cli::traced;

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

// On rank 0, which alone writes the results.
int dispatch(const Options& options) {
  for (const std::string& path : {options.json, options.svg}) {
    if (!path.empty()) sluice::check_writable(path);
  }
  for (const Entry& entry : kEntries) {
    if (entry.name == options.command) return entry.call(options);
  }
  sluice::fail(sluice::ErrorCode::usage, "no command \"" + options.command + "\"", "", "sluice --help lists them");
}

// What a shell gives for a process that writes to a pipe which nobody reads. Ranks can't just die of it, as one process
// does: the others would report it.
constexpr int kReaderGone = 128 + SIGPIPE;

bool reader_is_gone() {
  pollfd output = {STDOUT_FILENO, 0, 0};
  return sluice::app::is_rank() && poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

// What a failure is called ("": the user does not want to know), and the exit code it ends with.
struct Failure {
  std::string text;
  int exit_code = 0;
};

Failure failure_of(const std::exception_ptr& exception) {
  using sluice::ErrorCode;
  const auto code = [](ErrorCode c) { return static_cast<int>(c); };
  try {
    std::rethrow_exception(exception);
  } catch (const sluice::Error& e) {
    return {e.what(), e.exit_code()};
  } catch (const std::bad_alloc&) {
    return {"out of memory; choose a smaller model, context or --max-running-requests", code(ErrorCode::resources)};
  } catch (const std::filesystem::filesystem_error& e) {
    return {e.what(), code(ErrorCode::bad_input)};
  } catch (const std::system_error& e) {  // from fmt::print, when standard output is full or closed
    if (reader_is_gone()) return {"", kReaderGone};
    return {std::string(e.what()) + "; expected a file with free space or an open pipe", code(ErrorCode::resources)};
  } catch (const std::exception& e) {
    return {"internal error: " + std::string(e.what()) + "; please report it", code(ErrorCode::check_failed)};
  }
}

// What is still in the buffer has to reach the reader before success may be reported.
int flushed(int code) {
  const bool lost = std::ferror(stdout) != 0;
  if ((std::fflush(stdout) == 0 && !lost) || code == kReaderGone) return code;
  if (reader_is_gone()) return kReaderGone;
  sluice::fail(sluice::ErrorCode::resources, "standard output could not be written",
               "a file with free space or an open pipe");
}

// One rank of several: rank 0 runs the command, the others follow it. Whatever fails on one ends all.
int run_as_rank(Options options) {
  const auto session =
      sluice::app::join_ranks({.ranks = static_cast<int>(options.tp), .timeout_seconds = options.dist_timeout});
  int code = 0;
  try {
    if (session->size() > 1) {
      options.world = &session->world();
      options.session = session.get();
      sluice::app::agree(session->world(), sluice::cli::rank_facts(options));
    }
    code = traced(options, session->rank(), session->rank() == 0 ? dispatch : sluice::cli::follow_command);
    if (code == static_cast<int>(sluice::ErrorCode::resources) && reader_is_gone()) code = kReaderGone;
    code = flushed(code);
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    const std::string text = sluice::cli::printable(failure.text);
    if (failure.exit_code == static_cast<int>(sluice::ErrorCode::usage)) {
      session->refuse(text);
    } else {
      session->report(text);
    }
    code = failure.exit_code;
  }
  return session->finish(code);
}

int run_command_line(const Options& options, int argc, char** argv) {
  if (!sluice::cli::runs_on_ranks(options)) return flushed(traced(options, 0, dispatch));
  sluice::cli::parallel_choice(options);  // sizes that do not go together are refused before anything starts
  if (sluice::app::is_rank()) return run_as_rank(options);
  if (options.tp == 1) return flushed(traced(options, 0, dispatch));
  return sluice::app::start_ranks(static_cast<int>(options.tp), argc, argv);
}

int run(int argc, char** argv) {
  const sluice::cli::Parsed parsed = sluice::cli::parse(argc, argv, sluice::app::version_text());
  if (!parsed.done) return run_command_line(parsed.options, argc, argv);
  const std::string text = parsed.text.ends_with('\n') ? parsed.text.substr(0, parsed.text.size() - 1) : parsed.text;
  if (parsed.exit_code == 0) {
    fmt::print("{}\n", text);
  } else {
    sluice::cli::say(text);
  }
  return flushed(parsed.exit_code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    sluice::cli::say("sluice: " + sluice::cli::printable(failure.text));
    return failure.exit_code;
  }
}
