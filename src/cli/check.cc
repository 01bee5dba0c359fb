// sluice check: what a checkpoint holds and what is wrong with it.
#include <fmt/core.h>

#include "app/check_model.h"
#include "cli/commands.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

std::string bytes_text(std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

std::string layers_text(const ckpt::FormatUse& use) {
  if (use.first_layer < 0) return "";
  return use.first_layer == use.last_layer ? fmt::format("layer {}", use.first_layer)
                                           : fmt::format("layers {} to {}", use.first_layer, use.last_layer);
}

void print_formats(const ckpt::CheckReport& report) {
  if (report.formats.empty()) return;
  fmt::print("\n{:<20} {:<12} {:>8} {:>10}\n", "role", "format", "weights", "bytes");
  for (const ckpt::FormatUse& use : report.formats) {
    fmt::print("{:<20} {:<12} {:>8} {:>10}  {}\n", use.role, use.format, use.weights, bytes_text(use.bytes),
               layers_text(use));
  }
}

void print_findings(const ckpt::CheckReport& report) {
  if (!report.findings.empty()) fmt::print("\n");
  for (const ckpt::Finding& finding : report.findings) {
    fmt::print("{}: {}: {}{}\n", ckpt::severity_name(finding.severity), ckpt::finding_kind_name(finding.kind),
               finding.message, finding.count > 1 ? fmt::format(" ({} such cases)", finding.count) : "");
  }
}

void print_memory(const app::MemoryPlan& m) {
  fmt::print(
      "\nmemory on one rank, as stored: experts {}, other linear layers {}, embedding and the rest {}; together {}\n",
      bytes_text(static_cast<std::uint64_t>(m.expert_bytes)), bytes_text(static_cast<std::uint64_t>(m.linear_bytes)),
      bytes_text(static_cast<std::uint64_t>(m.replicated_bytes)),
      bytes_text(static_cast<std::uint64_t>(m.weight_bytes())));
  fmt::print("KV cache: {} a token in bf16\n", bytes_text(static_cast<std::uint64_t>(m.kv_bytes_per_token)));
}

void print(const app::ModelCheck& check, const Options& o) {
  const ckpt::CheckReport& r = check.report;
  if (!o.quiet) {
    fmt::print("{}: {} tensors, {}\n", check.architecture, r.tensors, bytes_text(r.bytes));
    fmt::print("read as {}; described as {}\n", r.scheme.empty() ? "nothing: no scheme can" : r.scheme,
               r.description.empty() ? "unquantised" : r.description);
    print_formats(r);
    print_memory(check.memory);
  }
  print_findings(r);
  fmt::print("{} errors, {} warnings: {}\n", r.count(ckpt::Severity::error), r.count(ckpt::Severity::warning),
             r.ok() ? "ok" : "FAILED");
}

Json finding_json(const ckpt::Finding& f) {
  return Json(Json::Object{{"severity", Json(ckpt::severity_name(f.severity))},
                           {"kind", Json(ckpt::finding_kind_name(f.kind))},
                           {"message", Json(f.message)},
                           {"file", Json(f.file)},
                           {"tensor", Json(f.tensor)},
                           {"count", Json(f.count)},
                           {"tensors", Json(Json::Array(f.tensors.begin(), f.tensors.end()))}});
}

Json to_json(const app::ModelCheck& check) {
  const ckpt::CheckReport& r = check.report;
  Json::Array formats, findings;
  for (const ckpt::FormatUse& use : r.formats) {
    formats.push_back(Json(Json::Object{{"role", Json(use.role)},
                                        {"format", Json(use.format)},
                                        {"weights", Json(use.weights)},
                                        {"bytes", Json(static_cast<std::int64_t>(use.bytes))},
                                        {"first_layer", Json(use.first_layer)},
                                        {"last_layer", Json(use.last_layer)}}));
  }
  for (const ckpt::Finding& f : r.findings) findings.push_back(finding_json(f));
  return Json(Json::Object{{"ok", Json(r.ok())},
                           {"architecture", Json(check.architecture)},
                           {"scheme", Json(r.scheme)},
                           {"description", Json(r.description)},
                           {"tensors", Json(r.tensors)},
                           {"bytes", Json(static_cast<std::int64_t>(r.bytes))},
                           {"weight_bytes", Json(check.memory.weight_bytes())},
                           {"kv_bytes_per_token", Json(check.memory.kv_bytes_per_token)},
                           {"formats", Json(std::move(formats))},
                           {"findings", Json(std::move(findings))}});
}

}  // namespace

int check_command(const Options& options) {
  app::CheckModelOptions how;
  how.path = options.model;
  how.scale_policy = options.scale_policy;
  how.block_scales = options.block_scales;
  how.weights = options.weights;
  const app::ModelCheck check = app::check_model(how);
  print(check, options);
  if (!options.json.empty()) write_json(options.json, to_json(check));
  return check.report.ok() ? 0 : static_cast<int>(ErrorCode::check_failed);
}

}  // namespace sluice::cli
