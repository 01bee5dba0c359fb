#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "app/kv_capacity.h"
#include "app/parallel_choice.h"
#include "app/wiring.h"
#include "core/rounding.h"
#include "engine/follow.h"

namespace sluice::app {
namespace {

// Scales are no parameters, and a byte of packed codes holds two.
std::int64_t count_parameters(const ckpt::Checkpoint& checkpoint) {
  std::int64_t total = 0;
  for (const ckpt::TensorEntry* tensor : checkpoint.tensors()) {
    if (tensor->name.find("scale") != std::string::npos) continue;
    std::int64_t elements = tensor->dtype == DType::u8 ? 2 : 1;
    for (const std::int64_t extent : tensor->shape) elements *= extent;
    total += elements;
  }
  return total;
}

// "cpu", or "cpu, reference" when layers differ.
std::string runner_names(const OpenedModel& model) {
  std::vector<std::string> names;
  for (const Selection& selection : model.selections) {
    if (selection.chosen == nullptr) continue;
    const std::string name(selection.chosen->name());
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  if (list.empty()) return "none (no MoE layers)";
  return model.choice.foreign_backend.empty() ? list : list + " for " + model.choice.foreign_backend;
}

// "nvfp4-w4a16", or "bf16, nvfp4-w4a16" when layers differ.
std::string recipe_names(const OpenedModel& model) {
  if (model.choice.recipes.empty()) return std::string(recipe_info(model.recipe).name);
  std::vector<Recipe> distinct = model.choice.recipes;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::string list;
  for (const Recipe recipe : distinct) list += (list.empty() ? "" : ", ") + std::string(recipe_info(recipe).name);
  return list;
}

// Settles how much the KV cache holds: as asked, or by the memory that is free now.
KvCapacity settle_kv(LoadedModel& m) {
  engine::EngineOptions& e = m.opened.options.engine;
  const std::int64_t block = m.decoder->kv_specs().front().block_tokens;
  if (e.kv_tokens > 0) return {rounded_up(e.kv_tokens, block), "as asked"};
  KvDemand demand;
  demand.sequences = e.max_sequences;
  demand.context = e.context_length;
  demand.block_tokens = block;
  demand.bytes_per_token = m.decoder->kv_bytes_per_token();
  demand.free_bytes = m.opened.backend->device().kind == DeviceKind::cpu ? free_memory_bytes() : 0;
  demand.fraction = m.opened.options.mem_fraction_static;
  Group* const world = m.opened.options.world;
  demand.free_bytes /= m.opened.sharing.memory;
  KvCapacity capacity = choose_kv_capacity(demand);
  if (world != nullptr) capacity.tokens = least_of(*world, capacity.tokens);
  e.kv_tokens = capacity.tokens;
  return capacity;
}

// How the model is spread over ranks, and in what format rows travel if they do.
std::string describe_ranks(const LoadedModel& m) {
  std::string text = describe(m.opened.options.parallel);
  for (std::int64_t i = 0; i < std::ssize(m.opened.config.layers); ++i) {
    if (m.decoder->quantized_rows(i)) return text + " in NVFP4";
  }
  return text;
}

ModelFacts facts_of(const LoadedModel& m, const KvCapacity& kv, double load_seconds) {
  const OpenedModel& opened = m.opened;
  ModelFacts f;
  f.architecture = opened.config.architecture;
  f.parameters = count_parameters(*opened.checkpoint);
  f.file_bytes = static_cast<std::int64_t>(opened.checkpoint->tensor_bytes());
  f.bits_per_weight =
      8.0 * static_cast<double>(f.file_bytes) / static_cast<double>(std::max<std::int64_t>(f.parameters, 1));
  f.recipe = recipe_names(opened);
  f.runner = runner_names(opened);
  f.device = opened.backend->describe();
  f.ranks = describe_ranks(m);
  f.dp = opened.plan.sizes.dp;
  f.resident_bytes = m.decoder->weight_bytes().total();
  f.kv_bytes_per_token = m.decoder->kv_bytes_per_token();
  const engine::EngineOptions& e = opened.options.engine;
  f.context_length = e.context_length;
  f.kv_bytes = kv.tokens * f.kv_bytes_per_token;
  f.kv_reason = kv.reason;
  f.load_seconds = load_seconds;
  return f;
}

engine::EngineRanks ranks_of(const OpenedModel& opened) {
  engine::EngineRanks ranks{opened.options.world, opened.plan};
  ranks.idle_seconds = std::min(ranks.idle_seconds, opened.options.rank_wait_seconds / 4);
  return ranks;
}

void tell_leftovers(const ckpt::WeightSource& weights, const LogSink& log) {
  if (!log) return;
  for (const std::string& note : weights.notes()) log(LogLevel::warning, note);
  const std::vector<std::string> unused = weights.unused();
  if (!unused.empty()) {
    log(LogLevel::warning,
        fmt::format("{} tensors of the checkpoint have no use here: {}", unused.size(), ckpt::first_few(unused)));
  }
}

}  // namespace

LoadedModel load_model(OpenedModel opened, const ProgressSink& progress, const LogSink& log) {
  const auto start = std::chrono::steady_clock::now();
  LoadedModel m;
  m.opened = std::move(opened);
  {
    const TraceSpan span(m.opened.options.trace, "load tokenizer");
    m.tokenizer = std::make_unique<text::Tokenizer>(text::Tokenizer::load(m.opened.path));
  }
  if (std::optional<text::ChatTemplate> chat = text::load_chat_template(m.opened.path)) {
    m.chat_template = std::make_unique<text::ChatTemplate>(*std::move(chat));
  }
  m.generation = m.opened.checkpoint->generation();
  m.decoder = model::load_decoder(m.opened.config, *m.opened.weights, decoder_options(m.opened), progress);
  tell_leftovers(*m.opened.weights, log);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  m.facts = facts_of(m, settle_kv(m), seconds.count());
  return m;
}

std::unique_ptr<engine::Engine> LoadedModel::make_engine() const {
  return std::make_unique<engine::Engine>(*decoder, opened.options.engine, ranks_of(opened));
}

void LoadedModel::follow() const { engine::follow(*decoder, opened.options.engine, ranks_of(opened)); }

}  // namespace sluice::app
