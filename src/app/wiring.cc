#include "app/wiring.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "app/rank_setup.h"
#include "app/ranks.h"
#include "checkpoint/scheme_compressed_tensors.h"
#include "checkpoint/scheme_fp8.h"
#include "checkpoint/scheme_modelopt.h"
#include "checkpoint/scheme_mxfp4.h"
#include "checkpoint/scheme_plain.h"
#include "core/error.h"
#include "core/rounding.h"
#include "cpu/backend.h"
#include "cpu/runner_cpu.h"
#include "cuda/backend.h"
#include "cuda/runner_hopper.h"
#include "dispatch/dispatcher.h"
#include "model/families.h"
#include "model/rank_part.h"
#include "model/shared_fusion.h"
#include "moe/layout/layout_runner.h"
#include "moe/placement.h"
#include "moe/reference_runner.h"

namespace sluice::app {
namespace {

DType compute_for(const std::string& dtype) {
  if (dtype == "auto" || dtype == "bfloat16") return DType::bf16;
  if (dtype == "float32") return DType::f32;
  fail(ErrorCode::usage, "dtype " + dtype, "auto, bfloat16 or float32");
}

// float32 computes any format without rounding; otherwise the stored format and the flags decide.
RecipeChoice choose(const OpenedModel& model, DType asked) {
  const LoadOptions& o = model.options;
  if (asked == DType::f32 && o.recipe != "auto" && o.recipe != "f32") {
    fail(ErrorCode::usage, "dtype float32 with recipe " + o.recipe, "recipe f32 or auto");
  }
  std::vector<Recipe> stored;
  for (std::size_t i = 0; i < model.config.layers.size(); ++i) {
    if (model.config.layers[i].moe() == nullptr) continue;
    stored.push_back(model.weights->expert_recipe(static_cast<std::int64_t>(i)));
  }
  std::vector<std::string> names;
  for (const auto& runner : model.runners) names.emplace_back(runner->name());
  RecipeRequest request{asked == DType::f32 ? "f32" : o.recipe, o.moe_runner_backend, o.quantization, o.mxfp4_precision,
                        o.disable_shared_experts_fusion};
  request.tp = o.parallel.tp;
  request.ep = o.parallel.ep;
  request.a2a = o.a2a;
  request.deepep_mode = o.deepep_mode;
  return choose_recipes(request, stored, names, model.config.architecture);
}

// What this rank's runner is asked: its part of the experts, and the tokens of all groups that reach it.
Problem problem_for(const OpenedModel& model, const LayerSpec& layer, Recipe recipe, Recipe stored) {
  Problem problem;
  problem.layer = layer;
  problem.recipe = recipe;
  problem.device = model.backend->device();
  problem.dispatch = dispatch_kind(model.plan.sizes);
  problem.max_tokens =
      std::max(model.options.engine.max_batch_tokens, model.options.engine.max_sequences) * model.plan.sizes.dp;
  problem.row_invariant = model.options.row_invariant;
  problem.upstream_gate_alpha = model.options.upstream_gate_alpha;
  return model.options.world == nullptr ? problem : model::problem_of_rank(problem, stored, model.plan);
}

// Takes this rank's place in the run. A rank's share of requests and of tokens a step is that of its dp group.
void join(OpenedModel& model, const LogSink& log) {
  LoadOptions& o = model.options;
  const std::int32_t ranks = o.world == nullptr ? 1 : o.world->size();
  if (ranks != o.parallel.tp) {
    fail(ErrorCode::usage, fmt::format("--tp {} with {} ranks", o.parallel.tp, ranks), "as many ranks as --tp says");
  }
  if (ranks == 1) o.world = nullptr;
  model.isa = isa_for(o.isa);
  if (o.world == nullptr) return;
  model.sharing = find_sharing(*o.world);
  const CommonIsa common = common_isa(*o.world, model.isa);
  model.isa = common.isa;
  if (!common.note.empty() && log) log(LogLevel::warning, common.note);
  model.plan = plan_rank(o.parallel, o.world->rank());
  const std::int32_t dp = o.parallel.dp;
  if (dp > 1) model.dp_group = o.world->split(model.plan.dp.index);
  o.engine.max_sequences = ceil_div(o.engine.max_sequences, dp);
  o.engine.max_batch_tokens = ceil_div(o.engine.max_batch_tokens, dp);
  agree(*o.world, {{"the headers of the checkpoint", header_digest(*model.checkpoint)}});
}

int threads_for(const OpenedModel& model) {
  if (model.options.threads > 0) return model.options.threads;
  return std::max(1, available_processors() / model.sharing.processors);
}

// SGLang refuses numbers of experts that the ranks do not divide.
void tell_uneven(const LogSink& log, const OpenedModel& model) {
  for (const model::BlockSpec& block : model.config.layers) {
    if (block.moe() == nullptr) continue;
    const std::int32_t experts = block.moe()->routing.total_experts(), ranks = model.plan.sizes.ep;
    Placement::contiguous(experts, ranks);  // refuses more ranks than experts
    if (experts % ranks == 0 || !log) continue;
    return log(LogLevel::info, fmt::format("{} experts over {} ranks: the first {} have one more than the others",
                                           experts, ranks, experts % ranks));
  }
}

void fuse_shared(OpenedModel& model) {
  if (!model.options.enforce_shared_experts_fusion) return;
  if (model.choice.disable_shared_experts_fusion) {
    fail(ErrorCode::usage, "--enforce-shared-experts-fusion together with a flag or a runner that disables it",
         "one of the two");
  }
  model::fuse_shared_experts(model.config);
}

void select_runners(OpenedModel& model) {
  std::vector<const Runner*> candidates;
  for (const auto& runner : model.runners) candidates.push_back(runner.get());
  auto recipe = model.choice.recipes.begin();
  for (const model::BlockSpec& block : model.config.layers) {
    model.problems.emplace_back();
    model.selections.emplace_back();
    if (block.moe() == nullptr) continue;
    const Recipe stored = model.weights->expert_recipe(std::ssize(model.problems) - 1);
    model.problems.back() = problem_for(model, *block.moe(), *recipe++, stored);
    model.selections.back() = select_runner(candidates, model.problems.back(), model.choice.runner);
  }
}

std::int64_t context_for(const OpenedModel& model) {
  const std::int64_t asked = model.options.engine.context_length;
  if (asked > model.config.max_positions) {
    fail(ErrorCode::usage, fmt::format("context of {} tokens", asked),
         fmt::format("at most {}, the max_position_embeddings of {}", model.config.max_positions, model.path));
  }
  return asked > 0 ? asked : model.config.max_positions;
}

// What the family leaves out on purpose, when the checkpoint has it.
void tell_skipped(const LogSink& log, const OpenedModel& model) {
  for (const model::SkippedTensors& skipped : model.config.skipped) {
    std::int64_t count = 0;
    for (const ckpt::TensorEntry* tensor : model.checkpoint->tensors()) {
      count += ckpt::matches(skipped.pattern, tensor->name) ? 1 : 0;
    }
    if (count > 0 && log) {
      log(LogLevel::info, fmt::format("{}: {} tensors of {} are skipped", skipped.pattern, count, skipped.what));
    }
  }
}

void tell(const LogSink& log, LogLevel level, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    if (log) log(level, note);
  }
}

}  // namespace

std::vector<model::Family> families() {
  return {
      model::deepseek_family(),   //
      model::glm4_moe_family(),   //
      model::gpt_oss_family(),    //
      model::mixtral_family(),    //
      model::olmoe_family(),      //
      model::qwen2_moe_family(),  //
      model::qwen3_moe_family(),  //
  };
}

std::vector<ckpt::Scheme> schemes() {
  return {ckpt::plain_scheme(), ckpt::modelopt_scheme(), ckpt::compressed_tensors_scheme(), ckpt::fp8_scheme(),
          ckpt::mxfp4_scheme()};
}

int cuda_index(const std::string& device) {
  if (device == "cuda") return 0;
  constexpr std::string_view kIndexed = "cuda:";
  const std::string_view index = std::string_view(device).substr(std::min(kIndexed.size(), device.size()));
  int gpu = -1;
  const auto [end, error] = std::from_chars(index.data(), index.data() + index.size(), gpu);
  if (device.substr(0, kIndexed.size()) != kIndexed || error != std::errc{} || end != index.data() + index.size() ||
      gpu < 0) {
    fail(ErrorCode::usage, "device " + device, "auto, cpu, cuda or cuda:N");
  }
  return gpu;
}

std::unique_ptr<Backend> make_backend(const std::string& device, ThreadPool& pool, cpu::Isa isa) {
  // Whole models need operations that the CUDA backend does not have yet, so auto is the CPU.
  if (device == "cpu" || device == "auto") return std::make_unique<cpu::CpuBackend>(pool, isa);
  return cuda::make_backend(cuda_index(device));
}

std::vector<std::unique_ptr<Runner>> runners(ThreadPool& pool, cpu::Isa isa) {
  std::vector<std::unique_ptr<Runner>> list;
  list.push_back(cuda::make_hopper_runner(&pool));
  list.push_back(cpu::make_cpu_runner(pool, isa));
  list.push_back(make_reference_runner(&pool));
  return list;
}

// The reference on weights that went through a physical layout.
void add_layout_runner(std::vector<std::unique_ptr<Runner>>& list, const std::string& name, ThreadPool& pool) {
  for (const layout::LayoutKind kind : layout::layout_kinds()) {
    auto runner = layout::make_layout_runner(kind, &pool);
    if (runner->name() == name) list.push_back(std::move(runner));
  }
}

cpu::Isa isa_for(const std::string& limit) {
  const cpu::Features features = cpu::detect_features();
  if (limit == "auto") return cpu::choose_isa(features);
  std::string name = limit;
  std::replace(name.begin(), name.end(), '_', '-');
  const std::optional<cpu::Isa> isa = cpu::isa_from_name(name);
  if (!isa) fail(ErrorCode::usage, "instruction set " + limit, "auto, scalar, avx2, avx512 or avx512_bf16");
  return cpu::choose_isa(features, *isa);
}

ModelFiles open_model_files(const std::string& path) {
  ModelFiles files;
  files.checkpoint = ckpt::Checkpoint::open(path);
  const std::vector<model::Family> known = families();
  const model::Family& family = model::find_family(known, files.checkpoint->config());
  files.config = family.configure(files.checkpoint->config());
  files.names = family.names(files.config);
  return files;
}

OpenedModel open_model(const std::string& path, const LoadOptions& options, const LogSink& log) {
  OpenedModel model;
  model.path = path;
  model.options = options;
  const DType asked = compute_for(options.dtype);
  tell(log, LogLevel::info, options.notes);
  ModelFiles files = open_model_files(path);
  model.checkpoint = std::move(files.checkpoint);
  model.config = std::move(files.config);
  tell(log, LogLevel::warning, model.checkpoint->notes());
  tell_skipped(log, model);
  join(model, log);
  model.options.engine.context_length = context_for(model);
  const std::vector<ckpt::Scheme> dialects = schemes();
  ckpt::SchemeOptions how;
  model.pool = std::make_unique<ThreadPool>(threads_for(model));
  how.pool = model.pool.get();
  how.scales = ckpt::ScalePolicy::parse(options.scale_policy);
  model.weights = ckpt::find_scheme(dialects, *model.checkpoint).open(*model.checkpoint, std::move(files.names), how);
  model.backend = make_backend(options.device, *model.pool, model.isa);
  model.runners = runners(*model.pool, model.isa);
  add_layout_runner(model.runners, options.moe_runner_backend, *model.pool);
  model.choice = choose(model, asked);
  tell(log, LogLevel::info, model.choice.notes);
  if (!model.choice.recipes.empty()) model.recipe = model.choice.recipes.front();
  model.compute = model.recipe == Recipe::f32 ? DType::f32 : asked;
  fuse_shared(model);
  select_runners(model);
  tell_uneven(log, model);
  if (model.options.world != nullptr) {
    tell(log, LogLevel::info, model::rank_notes(model.config, *model.weights, model.plan));
  }
  return model;
}

model::DecoderOptions decoder_options(const OpenedModel& opened) {
  model::DecoderOptions options;
  options.backend = opened.backend.get();
  options.compute = opened.compute;
  options.problems = opened.problems;
  options.max_positions = opened.options.engine.context_length;
  options.plan = opened.plan;
  options.world = opened.options.world;
  options.attention = opened.attention();
  options.quantized_rows = !opened.options.plain_rows;
  options.trace = opened.options.trace;
  for (const Selection& selection : opened.selections) options.runners.push_back(selection.chosen);
  return options;
}

}  // namespace sluice::app
