// sluice explain: what would run and why, before any weight is read.
#include "app/explain.h"

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

app::ExplainOptions explain_options(const Options& o) {
  app::ExplainOptions e;
  e.path = o.model;
  e.device = o.device;
  e.isa = o.isa;
  e.sizes = parallel_choice(o).sizes;
  e.request = {o.recipe, o.moe_runner_backend, o.quantization, o.mxfp4_precision};
  e.request.tp = e.sizes.tp;
  e.request.ep = e.sizes.ep;
  e.request.a2a = o.moe_a2a_backend;
  e.request.deepep_mode = o.deepep_mode;
  e.row_invariant = o.row_invariant();
  return e;
}

std::string layers_text(const app::LayerKind& kind) {
  if (kind.count == 1) return fmt::format("layer {}", kind.first);
  return fmt::format("{} layers, {} to {}", kind.count, kind.first, kind.last);
}

std::string bytes_text(std::int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

void print_kind(const app::LayerKind& kind, const ParallelSizes& sizes) {
  const RoutingSpec& r = kind.spec.routing;
  fmt::print("{}: {} experts, {} a token ({}), H {}, I {}, {}{}, stored as {}\n", layers_text(kind), r.experts, r.top_k,
             routing_name(r.method), kind.spec.width(), kind.spec.intermediate,
             activation_name(kind.spec.activation.kind), kind.spec.has_bias ? ", biases" : "",
             recipe_info(kind.stored).name);
  if (sizes.tp > 1) {
    fmt::print("  a rank of {}: {} experts, I {} of {}{}\n", sizes.tp, kind.experts_per_rank, kind.inner_per_rank,
               kind.spec.intermediate, kind.split_problem.empty() ? "" : ": NOT POSSIBLE, " + kind.split_problem);
  }
  fmt::print("  {:<20} {:<12} {:<4} {}\n", "recipe", "runner", "", "reason");
  for (const app::Candidacy& c : kind.table) {
    fmt::print("  {:<20} {:<12} {:<4} {}\n", c.recipe, c.runner, c.ok ? "yes" : "no", c.reason);
  }
  fmt::print("  > {}\n", kind.chosen.empty()
                             ? "nothing runs these layers in " + std::string(recipe_info(kind.recipe).name)
                             : kind.chosen);
  std::string kernels;
  for (const app::KernelChoice& k : kind.kernels) {
    kernels += fmt::format("{}{} {}", kernels.empty() ? "" : ", ", k.tokens, k.kernel);
  }
  if (!kernels.empty()) fmt::print("    kernels for up to so many tokens (fp8-tensor: static scales): {}\n", kernels);
}

Json kernels_json(const app::LayerKind& kind) {
  Json::Array kernels;
  for (const app::KernelChoice& k : kind.kernels) {
    kernels.push_back(Json(Json::Object{{"tokens", Json(k.tokens)}, {"kernel", Json(k.kernel)}}));
  }
  return Json(std::move(kernels));
}

Json kind_json(const app::LayerKind& kind) {
  Json::Array table;
  for (const app::Candidacy& c : kind.table) {
    table.push_back(Json(Json::Object{
        {"recipe", Json(c.recipe)}, {"runner", Json(c.runner)}, {"ok", Json(c.ok)}, {"reason", Json(c.reason)}}));
  }
  return Json(Json::Object{{"first_layer", Json(kind.first)},
                           {"last_layer", Json(kind.last)},
                           {"layers", Json(kind.count)},
                           {"experts", Json(static_cast<std::int64_t>(kind.spec.routing.experts))},
                           {"top_k", Json(static_cast<std::int64_t>(kind.spec.routing.top_k))},
                           {"hidden", Json(kind.spec.width())},
                           {"intermediate", Json(kind.spec.intermediate)},
                           {"stored", Json(recipe_info(kind.stored).name)},
                           {"recipe", Json(recipe_info(kind.recipe).name)},
                           {"experts_per_rank", Json(kind.experts_per_rank)},
                           {"intermediate_per_rank", Json(kind.inner_per_rank)},
                           {"split_problem", Json(kind.split_problem)},
                           {"chosen", Json(kind.chosen)},
                           {"kernels", kernels_json(kind)},
                           {"candidates", Json(std::move(table))}});
}

Json to_json(const app::Explanation& e, const app::ExplainOptions& o) {
  Json::Array kinds, problems(e.problems.begin(), e.problems.end()), notes(e.notes.begin(), e.notes.end());
  for (const app::LayerKind& kind : e.kinds) kinds.push_back(kind_json(kind));
  const app::MemoryPlan& m = e.memory;
  return Json(Json::Object{{"architecture", Json(e.architecture)},
                           {"scheme", Json(e.scheme)},
                           {"device", Json(o.device)},
                           {"tp", Json(static_cast<std::int64_t>(o.sizes.tp))},
                           {"ep", Json(static_cast<std::int64_t>(o.sizes.ep))},
                           {"runnable", Json(e.runnable())},
                           {"layer_kinds", Json(std::move(kinds))},
                           {"dense_layers", Json(e.dense_layers)},
                           {"rank_bytes", Json(Json::Object{{"experts", Json(m.expert_bytes)},
                                                            {"linear", Json(m.linear_bytes)},
                                                            {"replicated", Json(m.replicated_bytes)},
                                                            {"weights", Json(m.weight_bytes())},
                                                            {"weights_of_smallest", Json(e.least_weight_bytes)},
                                                            {"kv_per_token", Json(m.kv_bytes_per_token)}})},
                           {"notes", Json(std::move(notes))},
                           {"problems", Json(std::move(problems))}});
}

void print(const app::Explanation& e, const app::ExplainOptions& o) {
  fmt::print("{}: read as {}, device {}{}\n\n", e.architecture, e.scheme, o.device,
             o.sizes.tp > 1 ? fmt::format(", tp {}, ep {}", o.sizes.tp, o.sizes.ep) : "");
  for (const std::string& note : e.notes) fmt::print("{}\n", note);
  for (const app::LayerKind& kind : e.kinds) print_kind(kind, o.sizes);
  if (e.dense_layers > 0) fmt::print("{} layers without experts\n", e.dense_layers);
  const app::MemoryPlan& m = e.memory;
  fmt::print(
      "\nmemory of one rank, as stored: experts {}, other linear layers {}, on every rank alike {}; together {}\n",
      bytes_text(m.expert_bytes), bytes_text(m.linear_bytes), bytes_text(m.replicated_bytes),
      bytes_text(m.weight_bytes()));
  fmt::print("KV cache: {} a token in bf16, {} for 32768 tokens\n", bytes_text(m.kv_bytes_per_token),
             bytes_text(m.kv_bytes_per_token * 32768));
  for (const std::string& problem : e.problems) fmt::print("error: {}\n", problem);
}

}  // namespace

int explain_command(const Options& options) {
  const app::ExplainOptions asked = explain_options(options);
  app::Explanation explanation = app::explain(asked);
  const std::vector<std::string> notes = parallel_choice(options).notes;
  explanation.notes.insert(explanation.notes.begin(), notes.begin(), notes.end());
  if (options.json.empty()) {
    print(explanation, asked);
  } else {
    write_json(options.json, to_json(explanation, asked));
    if (!options.quiet) print(explanation, asked);
  }
  const bool ok = explanation.runnable() && explanation.problems.empty();
  return ok ? 0 : static_cast<int>(ErrorCode::unsupported);
}

}  // namespace sluice::cli
