#include "app/explain.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "app/ask_weights.h"
#include "app/backend_names.h"
#include "core/error.h"

namespace sluice::app {
namespace {

constexpr Recipe kRecipes[] = {Recipe::f32,
                               Recipe::bf16,
                               Recipe::fp8_tensor,
                               Recipe::fp8_block,
                               Recipe::nvfp4_w4a16,
                               Recipe::nvfp4_w4a4_cutedsl,
                               Recipe::nvfp4_w4a4_cutlass,
                               Recipe::mxfp4_w4a16,
                               Recipe::mxfp4_w4a8};
static_assert(std::size(kRecipes) == static_cast<std::size_t>(Recipe::mxfp4_w4a8) + 1, "every recipe is asked for");

Device device_of(const std::string& name) {
  if (name == "cpu") return {};
  if (name == "cuda") return {DeviceKind::cuda, 0};
  fail(ErrorCode::usage, "--device " + name, "cpu or cuda");
}

void check_split(const Split& split) {
  if (split.tp < 1 || split.ep < 1 || split.tp % split.ep != 0) {
    fail(ErrorCode::usage, fmt::format("--tp {} --ep {}", split.tp, split.ep),
         "ranks of expert parallelism (ep) that divide all ranks (tp), both at least 1");
  }
}

// Smallest run of the intermediate dimension that shares a scale.
std::int64_t group_of(Recipe stored) {
  switch (format_of(stored)) {
    case WeightFormat::fp8_block:
      return 128;
    case WeightFormat::nvfp4:
      return 16;
    case WeightFormat::mxfp4:
      return 32;
    default:
      return 1;
  }
}

std::string split_problem(const LayerKind& kind, const Split& split) {
  const std::int64_t experts = kind.spec.routing.experts;
  const std::int64_t inner = kind.spec.intermediate;
  if (experts % split.ep != 0) return fmt::format("{} experts do not divide by ep {}", experts, split.ep);
  if (inner % split.pieces() != 0) return fmt::format("I = {} does not divide by tp / ep = {}", inner, split.pieces());
  const std::int64_t group = group_of(kind.stored);
  if (split.pieces() > 1 && inner / split.pieces() % group != 0) {
    return fmt::format("I per rank = {} / {} = {} cuts scale groups of {}; use an ep that leaves whole experts", inner,
                       split.pieces(), inner / split.pieces(), group);
  }
  return "";
}

Problem problem_of(const LayerKind& kind, const ExplainOptions& o, Recipe recipe) {
  Problem problem;
  problem.layer = kind.spec;
  problem.layer.intermediate = kind.inner_per_rank;
  problem.recipe = recipe;
  problem.device = device_of(o.device);
  problem.dispatch = o.split.tp > 1 ? DispatchKind::allreduce : DispatchKind::local;
  problem.parallel.ep_size = static_cast<std::int32_t>(o.split.ep);
  problem.parallel.tp_size = static_cast<std::int32_t>(o.split.pieces());
  problem.max_tokens = o.max_tokens;
  problem.row_invariant = o.row_invariant;
  return problem;
}

Verdict verdict_of(const Runner& runner, const LayerKind& kind, const ExplainOptions& o, Recipe recipe) {
  if (recipe != Recipe::f32 && format_of(recipe) != format_of(kind.stored)) {
    return Verdict::no(fmt::format("the weights are stored as {}", format_name(format_of(kind.stored))));
  }
  if (!kind.split_problem.empty()) return Verdict::no(kind.split_problem);
  return runner.supports(problem_of(kind, o, recipe));
}

// `wanted` is auto or the name of a runner.
void fill_table(LayerKind& kind, const ExplainOptions& o, const std::vector<std::unique_ptr<Runner>>& runners,
                const std::string& wanted) {
  for (const Recipe recipe : kRecipes) {
    for (const auto& runner : runners) {
      const Verdict verdict = verdict_of(*runner, kind, o, recipe);
      kind.table.push_back(
          {std::string(recipe_info(recipe).name), std::string(runner->name()), verdict.ok, verdict.reason});
      const bool asked = recipe == kind.recipe && (wanted == "auto" || wanted == runner->name());
      if (verdict.ok && asked && kind.chosen.empty()) {
        kind.chosen = fmt::format("{} on {}", recipe_info(recipe).name, runner->name());
      }
    }
  }
}

bool same_kind(const LayerKind& kind, const LayerSpec& spec, Recipe stored) {
  const LayerSpec& k = kind.spec;
  return kind.stored == stored && k.hidden == spec.hidden && k.intermediate == spec.intermediate &&
         k.expert_width == spec.expert_width && k.routing.method == spec.routing.method &&
         k.routing.experts == spec.routing.experts && k.routing.top_k == spec.routing.top_k &&
         k.activation.kind == spec.activation.kind && k.has_bias == spec.has_bias &&
         k.weight_on_input == spec.weight_on_input;
}

std::vector<LayerKind> kinds_of(const model::ModelConfig& config, const ckpt::WeightSource& source,
                                const Split& split) {
  std::vector<LayerKind> kinds;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const LayerSpec* spec = config.layers[i].moe();
    if (spec == nullptr) continue;
    const auto layer = static_cast<std::int64_t>(i);
    const Recipe stored = source.expert_recipe(layer);
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return same_kind(k, *spec, stored); });
    if (kind == kinds.end()) {
      kind = kinds.insert(kinds.end(), LayerKind{});
      kind->first = layer;
      kind->spec = *spec;
      kind->stored = stored;
    }
    kind->last = layer;
    ++kind->count;
  }
  for (LayerKind& kind : kinds) {
    kind.experts_per_rank = (kind.spec.routing.experts + split.ep - 1) / split.ep;
    kind.inner_per_rank = kind.spec.intermediate / split.pieces();
    kind.split_problem = split_problem(kind, split);
  }
  return kinds;
}

RecipeChoice apply_flags(Explanation& out, const RecipeRequest& request,
                         const std::vector<std::unique_ptr<Runner>>& runners) {
  std::vector<Recipe> stored;
  for (const LayerKind& kind : out.kinds) stored.push_back(kind.stored);
  std::vector<std::string> names;
  for (const auto& runner : runners) names.emplace_back(runner->name());
  RecipeChoice choice = choose_recipes(request, stored, names, out.architecture);
  for (std::size_t i = 0; i < out.kinds.size(); ++i) out.kinds[i].recipe = choice.recipes[i];
  out.notes = choice.notes;
  return choice;
}

}  // namespace

bool Explanation::runnable() const {
  return std::all_of(kinds.begin(), kinds.end(), [](const LayerKind& kind) { return !kind.chosen.empty(); });
}

Explanation explain(const ExplainOptions& options) {
  check_split(options.split);
  device_of(options.device);
  const ModelFiles files = open_model_files(options.path);
  const model::ModelConfig& config = files.config;
  const std::vector<ckpt::Scheme> dialects = schemes();
  const ckpt::Scheme& scheme = ckpt::find_scheme(dialects, *files.checkpoint);
  ckpt::FindingList findings;
  ckpt::SchemeOptions how;
  how.read_ahead = false;
  how.block_scales = false;
  how.findings = &findings;
  const auto source = scheme.open(*files.checkpoint, files.names, how);
  ask_for_weights(config, *source);

  Explanation out;
  out.architecture = config.architecture;
  out.scheme = scheme.name;
  out.formats = source->formats();
  out.memory = plan_memory(config, out.formats, options.split);
  for (const ckpt::Finding& finding : findings.all()) {
    if (finding.severity == ckpt::Severity::error) out.problems.push_back(finding.message);
  }
  out.kinds = kinds_of(config, *source, options.split);
  out.dense_layers = std::ssize(config.layers) - config.moe_layers();
  ThreadPool pool(1);
  std::vector<std::unique_ptr<Runner>> list = runners(pool, isa_for(options.isa));
  add_layout_runner(list, options.request.moe_runner_backend, pool);
  const RecipeChoice choice = apply_flags(out, options.request, list);
  for (LayerKind& kind : out.kinds) fill_table(kind, options, list, choice.runner);
  return out;
}

}  // namespace sluice::app
