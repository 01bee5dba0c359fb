#include "cli/traced.h"

#include <fmt/core.h>

#include <exception>

#include "cli/terminal.h"
#include "core/error.h"
#include "core/file.h"
#include "core/trace.h"

namespace sluice::cli {
namespace {

std::string trace_path(const Options& options) {
  return options.trace_rank == 0 ? options.trace_file
                                 : fmt::format("{}.rank{}", options.trace_file, options.trace_rank);
}

void write_trace(const Options& options) {
  const std::string process = fmt::format("sluice {}, rank {}", options.command, options.trace_rank);
  write_file(trace_path(options), options.trace->json(process, options.trace_rank));
}

}  // namespace

int traced(Options options, int rank, int (*command)(const Options&)) {
  if (options.trace_file.empty()) return command(options);
  if (!options.base_url.empty()) {
    fail(ErrorCode::usage, "--trace with --base-url, where no model runs here", "one of them",
         "give --trace to the server");
  }
  Trace trace;
  options.trace = &trace;
  options.trace_rank = rank;
  if (rank > 0) replaceable_target(options.trace_file);  // no names beside a device or a pipe
  check_writable(trace_path(options));
  int code = 0;
  try {
    code = command(options);
  } catch (...) {
    leave_trace(options);  // what the command says matters more than what this may fail with
    throw;
  }
  write_trace(options);
  return code;
}

void leave_trace(const Options& options) noexcept {
  if (options.trace == nullptr) return;
  try {
    write_trace(options);
  } catch (const std::exception& e) {
    say("sluice: the trace is lost: " + printable(e.what()));
  }
}

}  // namespace sluice::cli
