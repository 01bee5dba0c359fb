#include "cli/traced.h"

#include <fmt/core.h>

#include "core/error.h"
#include "core/file.h"
#include "core/trace.h"

namespace sluice::cli {
namespace {

void write_trace(const Trace& trace, const Options& options, int rank) {
  const std::string path = rank == 0 ? options.trace_file : fmt::format("{}.rank{}", options.trace_file, rank);
  write_file(path, trace.json(fmt::format("sluice {}, rank {}", options.command, rank), rank));
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
  int code = 0;
  try {
    code = command(options);
  } catch (...) {
    try {
      write_trace(trace, options, rank);
    } catch (const Error&) {  // what the command says matters more
    }
    throw;
  }
  write_trace(trace, options, rank);
  return code;
}

}  // namespace sluice::cli
