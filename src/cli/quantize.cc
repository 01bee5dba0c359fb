// sluice quantize: writes a checkpoint in another number format or dialect.
#include "app/quantize.h"

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/session.h"

namespace sluice::cli {
namespace {

app::QuantizeOptions quantize_options(const Options& o) {
  app::QuantizeOptions q;
  q.source = o.model;
  q.out = o.output;
  q.format = o.format;
  q.dialect = o.dialect;
  q.mx_scale = o.mx_scale;
  q.calibrate = o.calibrate;
  q.include = o.include;
  q.load = load_options(o);
  q.max_shard_bytes = static_cast<std::uint64_t>(o.max_shard_size);
  return q;
}

std::string format_line(const ckpt::ExportTarget& target) {
  std::string text(ckpt::format_name(target.format));
  if (target.is_plain()) return text;
  text += fmt::format(", dialect {}", ckpt::dialect_name(target.dialect));
  return text + (target.static_inputs ? ", static input scales" : "");
}

void print_result(const app::QuantizeResult& result, const Options& o) {
  const ckpt::ExportReport& r = result.report;
  const double gbps = result.seconds > 0 ? static_cast<double>(r.source_bytes) / result.seconds * 1e-9 : 0;
  fmt::print("{}: {} > {} ({} projections quantised, {} linear layers kept), {} files{} | {:.2f} s, {:.2f} GB/s\n",
             format_line(result.target), human_bytes(static_cast<double>(r.source_bytes)),
             human_bytes(static_cast<double>(r.written_bytes)), r.quantised, r.excluded.size(), r.shards,
             r.resumed_shards > 0 ? fmt::format(", {} of them from an earlier run", r.resumed_shards) : "",
             result.seconds, gbps);
  if (result.calibration_tokens > 0) {
    fmt::print("input scales: from {} tokens{}\n", result.calibration_tokens,
               result.unseen_experts > 0
                   ? fmt::format("; {} experts saw none and have the largest of their layer", result.unseen_experts)
                   : "");
  }
  fmt::print("written to {}\n", o.output);
}

}  // namespace

int quantize_command(const Options& options) {
  Terminal terminal(options.quiet);
  const app::QuantizeResult result = app::quantize(quantize_options(options), terminal.progress(), terminal.log());
  for (const std::string& note : result.report.notes) terminal.log()(LogLevel::warning, note);
  print_result(result, options);
  return 0;
}

}  // namespace sluice::cli
