#include "app/wiring.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "checkpoint/scheme_plain.h"
#include "core/error.h"
#include "cpu/backend.h"
#include "cpu/runner_cpu.h"
#include "cuda/backend.h"
#include "moe/reference_runner.h"

namespace sluice::app {
namespace {

DType compute_for(const std::string& dtype) {
  if (dtype == "auto" || dtype == "bfloat16") return DType::bf16;
  if (dtype == "float32") return DType::f32;
  fail(ErrorCode::usage, "dtype " + dtype, "auto, bfloat16 or float32");
}

// float32 computes any format without rounding; otherwise the stored format decides.
Recipe recipe_for(const OpenedModel& model) {
  if (model.compute == DType::f32) return Recipe::f32;
  for (std::size_t i = 0; i < model.config.layers.size(); ++i) {
    if (model.config.layers[i].moe() != nullptr) return model.weights->expert_recipe(static_cast<std::int64_t>(i));
  }
  return Recipe::bf16;
}

Problem problem_for(const OpenedModel& model, const LayerSpec& layer) {
  Problem problem;
  problem.layer = layer;
  problem.recipe = model.recipe;
  problem.device = model.backend->device();
  problem.max_tokens = std::max(model.options.engine.max_batch_tokens, model.options.engine.max_sequences);
  problem.row_invariant = model.options.row_invariant;
  return problem;
}

void select_runners(OpenedModel& model) {
  std::vector<const Runner*> candidates;
  for (const auto& runner : model.runners) candidates.push_back(runner.get());
  for (const model::BlockSpec& block : model.config.layers) {
    model.problems.emplace_back();
    model.selections.emplace_back();
    if (block.moe() == nullptr) continue;
    model.problems.back() = problem_for(model, *block.moe());
    model.selections.back() = select_runner(candidates, model.problems.back(), model.options.moe_runner_backend);
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

void tell(const LogSink& log, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    if (log) log(LogLevel::warning, note);
  }
}

}  // namespace

std::vector<model::Family> families() {
  return {
      model::glm4_moe_family(), model::gpt_oss_family(),   model::mixtral_family(),
      model::olmoe_family(),    model::qwen2_moe_family(), model::qwen3_moe_family(),
  };
}

std::vector<ckpt::Scheme> schemes() { return {ckpt::plain_scheme()}; }

std::unique_ptr<Backend> make_backend(const std::string& device, ThreadPool& pool, cpu::Isa isa) {
  const bool use_cuda = device == "auto" && cuda::status().usable;
  if (device == "cpu" || (device == "auto" && !use_cuda)) return std::make_unique<cpu::CpuBackend>(pool, isa);
  if (device == "cuda" || use_cuda) return cuda::make_backend(0);
  constexpr std::string_view kIndexed = "cuda:";
  const std::string_view index = std::string_view(device).substr(std::min(kIndexed.size(), device.size()));
  int gpu = -1;
  const auto [end, error] = std::from_chars(index.data(), index.data() + index.size(), gpu);
  if (device.substr(0, kIndexed.size()) != kIndexed || error != std::errc{} || end != index.data() + index.size() ||
      gpu < 0) {
    fail(ErrorCode::usage, "device " + device, "auto, cpu, cuda or cuda:N");
  }
  return cuda::make_backend(gpu);
}

std::vector<std::unique_ptr<Runner>> runners(ThreadPool& pool, cpu::Isa isa) {
  std::vector<std::unique_ptr<Runner>> list;
  list.push_back(cpu::make_cpu_runner(pool, isa));
  list.push_back(make_reference_runner(&pool));
  return list;
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

OpenedModel open_model(const std::string& path, const LoadOptions& options, const LogSink& log) {
  OpenedModel model;
  model.path = path;
  model.options = options;
  model.compute = compute_for(options.dtype);
  model.checkpoint = ckpt::Checkpoint::open(path);
  tell(log, model.checkpoint->notes());
  const std::vector<model::Family> known = families();
  const model::Family& family = model::find_family(known, model.checkpoint->config());
  model.config = family.configure(model.checkpoint->config());
  model.options.engine.context_length = context_for(model);
  const std::vector<ckpt::Scheme> dialects = schemes();
  model.weights = ckpt::find_scheme(dialects, *model.checkpoint).open(*model.checkpoint, family.names(model.config));
  model.recipe = recipe_for(model);
  model.isa = isa_for(options.isa);
  model.pool = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : available_processors());
  model.backend = make_backend(options.device, *model.pool, model.isa);
  model.runners = runners(*model.pool, model.isa);
  select_runners(model);
  return model;
}

model::DecoderOptions decoder_options(const OpenedModel& opened) {
  model::DecoderOptions options;
  options.backend = opened.backend.get();
  options.compute = opened.compute;
  options.problems = opened.problems;
  options.max_positions = opened.options.engine.context_length;
  for (const Selection& selection : opened.selections) options.runners.push_back(selection.chosen);
  return options;
}

}  // namespace sluice::app
