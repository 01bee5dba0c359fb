#include "app/explain.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "app/ask_weights.h"
#include "app/backend_names.h"
#include "core/error.h"
#include "cuda/runner_hopper.h"
#include "dispatch/dispatcher.h"
#include "model/rank_part.h"
#include "moe/placement.h"

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

// What ranks hold of the layers, and why they cannot, if so.
void split_kind(LayerKind& kind, const ParallelSizes& sizes) {
  try {
    const Placement placement = Placement::contiguous(kind.spec.routing.total_experts(), sizes.ep);
    for (std::int32_t r = 0; r < sizes.tp; ++r) {  // the last piece may be empty
      const RankPlan plan = plan_rank(sizes, r);
      const ckpt::ExpertSlice slice = model::expert_slice(kind.spec, kind.stored, placement, plan);
      const std::int64_t experts = placement.of_rank(plan.experts.index).count;
      kind.experts_per_rank = std::max(kind.experts_per_rank, experts);
      kind.inner_per_rank = std::max(kind.inner_per_rank, slice.inner_of(kind.spec.intermediate).count());
    }
  } catch (const Error& error) {
    kind.split_problem = error.what();
  }
}

Problem problem_of(const LayerKind& kind, const ExplainOptions& o, Recipe recipe) {
  Problem problem;
  problem.layer = kind.spec;
  problem.layer.intermediate = kind.inner_per_rank;
  problem.recipe = recipe;
  problem.device = device_of(o.device);
  problem.dispatch = dispatch_kind(o.sizes);
  problem.parallel.ep_size = o.sizes.ep;
  problem.parallel.tp_size = o.sizes.tp / o.sizes.ep;
  problem.max_tokens = o.max_tokens * o.sizes.dp;
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

// What the runner for Hopper launches, from one token on; equal neighbours are one entry, with the most tokens of them.
std::vector<KernelChoice> hopper_kernels(const Problem& problem, std::int64_t experts) {
  constexpr std::int64_t kMostTokens = 16384;
  std::vector<KernelChoice> kernels;
  for (std::int64_t tokens = 1; tokens <= kMostTokens; tokens *= 2) {
    std::string kernel = cuda::hopper_kernel(problem, experts, tokens);
    if (!kernels.empty() && kernels.back().kernel == kernel) kernels.pop_back();
    kernels.push_back({tokens, std::move(kernel)});
  }
  return kernels;
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
        if (runner->name() == "hopper") {
          kind.kernels = hopper_kernels(problem_of(kind, o, recipe), kind.experts_per_rank);
        }
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
                                const ParallelSizes& sizes) {
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
  for (LayerKind& kind : kinds) split_kind(kind, sizes);
  return kinds;
}

// A split that some layer refuses has no plan.
void plan_all(Explanation& out, const model::ModelConfig& config, ckpt::WeightSource& source,
              const ParallelSizes& sizes) {
  try {
    const std::vector<MemoryPlan> plans = plan_ranks(config, source, sizes);
    out.memory = largest(plans);
    out.least_weight_bytes = out.memory.weight_bytes();
    for (const MemoryPlan& plan : plans) {
      out.least_weight_bytes = std::min(out.least_weight_bytes, plan.weight_bytes());
    }
    for (std::string& note : model::rank_notes(config, source, plan_rank(sizes, 0))) {
      out.notes.push_back(std::move(note));
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    out.problems.emplace_back(error.what());
  }
}

RecipeChoice apply_flags(Explanation& out, const RecipeRequest& request,
                         const std::vector<std::unique_ptr<Runner>>& runners) {
  std::vector<Recipe> stored;
  for (const LayerKind& kind : out.kinds) stored.push_back(kind.stored);
  std::vector<std::string> names;
  for (const auto& runner : runners) names.emplace_back(runner->name());
  RecipeChoice choice = choose_recipes(request, stored, names, out.architecture);
  for (std::size_t i = 0; i < out.kinds.size(); ++i) out.kinds[i].recipe = choice.recipes[i];
  out.notes.insert(out.notes.end(), choice.notes.begin(), choice.notes.end());
  return choice;
}

}  // namespace

bool Explanation::runnable() const {
  return std::all_of(kinds.begin(), kinds.end(), [](const LayerKind& kind) { return !kind.chosen.empty(); });
}

Explanation explain(const ExplainOptions& options) {
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
  for (const ckpt::Finding& finding : findings.all()) {
    if (finding.severity == ckpt::Severity::error) out.problems.push_back(finding.message);
  }
  out.kinds = kinds_of(config, *source, options.sizes);
  plan_all(out, config, *source, options.sizes);
  out.dense_layers = std::ssize(config.layers) - config.moe_layers();
  ThreadPool pool(1);
  std::vector<std::unique_ptr<Runner>> list = runners(pool, isa_for(options.isa));
  add_layout_runner(list, options.request.moe_runner_backend, pool);
  const RecipeChoice choice = apply_flags(out, options.request, list);
  for (LayerKind& kind : out.kinds) fill_table(kind, options, list, choice.runner);
  return out;
}

}  // namespace sluice::app
