// The one place that knows all backends, runners, schemes and families by name. Opens and loads a model directory.
//
// Used by the commands, the server and the bindings. Two steps, so that a choice can be shown or refused before any
// weight is read: open_model reads configuration and file headers only and asks every runner; load_model reads the
// weights. In a run over several ranks every rank takes both steps, at the same time and with the same options.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/rank_setup.h"
#include "app/recipe_choice.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/scheme.h"
#include "comm/group.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "cpu/features.h"
#include "engine/engine.h"
#include "model/decoder.h"
#include "model/family.h"
#include "moe/parallel.h"
#include "moe/selection.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace sluice::app {

struct LoadOptions {
  std::string dtype = "auto";               // auto, bfloat16 or float32 (recipe f32 on the reference runner)
  std::string device = "auto";              // auto, cpu, cuda or cuda:N; auto = cpu
  std::string moe_runner_backend = "auto";  // auto, the name of a runner, or one of SGLang's (backend_names.h)
  std::string recipe = "auto";              // auto = as stored, or a recipe's name
  std::string quantization;                 // SGLang's --quantization; empty = as stored
  std::string mxfp4_precision = "default";  // default, bf16 or fp8: what flashinfer_mxfp4 quantises inputs to
  std::string scale_policy = "strict";      // as ckpt::ScalePolicy::parse reads it
  bool disable_shared_experts_fusion = false;
  bool enforce_shared_experts_fusion = false;  // shared experts as further routed ones; model/shared_fusion.h
  bool upstream_gate_alpha = false;            // Problem::upstream_gate_alpha
  std::vector<std::string> notes;              // what became of foreign flags, for the log
  std::string isa = "auto";                    // auto, scalar, avx2, avx512, avx512_bf16: the most that may be used
  int threads = 0;                             // 0 = all processors of this process
  bool row_invariant = true;
  double mem_fraction_static = 0;  // of the free memory for the KV cache; 0 = kv_capacity.h's default
  Trace* trace = nullptr;          // not owned, outlives the model: spans of loading and of every step; nullptr = none
  engine::EngineOptions engine;    // context_length 0 = the model's; kv_tokens 0 = by mem_fraction_static

  // Of a run over several ranks, each of which opens and loads its own part. Requests and tokens of a step in `engine`
  // are those of the whole run; kv_tokens are those of a dp group.
  Group* world = nullptr;            // not owned, outlives the model; nullptr = one rank
  ParallelSizes parallel;            // as choose_parallel returns them
  double rank_wait_seconds = 300;    // the limit of waits of `world`
  bool plain_rows = false;           // rows between ranks travel in bf16 where they could in NVFP4
  std::string a2a = "none";          // --moe-a2a-backend, for the rules of runners' names
  std::string deepep_mode = "auto";  // likewise
};

// A model directory as its configuration and file headers tell it: what every command begins with.
struct ModelFiles {
  std::unique_ptr<ckpt::Checkpoint> checkpoint;
  model::ModelConfig config;
  ckpt::NameMap names;
};
// Throws Error for a damaged checkpoint or an unknown architecture.
ModelFiles open_model_files(const std::string& path);

// Everything that can be told without reading a weight.
struct OpenedModel {
  std::string path;
  LoadOptions options;
  std::unique_ptr<ckpt::Checkpoint> checkpoint;
  model::ModelConfig config;
  std::unique_ptr<ckpt::WeightSource> weights;
  Recipe recipe = Recipe::bf16;  // of the first MoE layer; problems have each layer's
  RecipeChoice choice;
  Sharing sharing;                  // of this machine with other ranks
  RankPlan plan;                    // this rank's part
  std::unique_ptr<Group> dp_group;  // its ranks, where there are several dp groups of several ranks
  DType compute = DType::bf16;
  cpu::Isa isa = cpu::Isa::scalar;  // in use
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> backend;
  std::vector<std::unique_ptr<Runner>> runners;  // in order of preference
  std::vector<Problem> problems;                 // [layers] what they were asked; default for dense layers
  std::vector<Selection> selections;             // [layers] what they answered; empty for dense layers

  // The ranks that see the same tokens as this one; nullptr = one rank.
  Group* attention() const { return dp_group ? dp_group.get() : options.world; }
};

// What the start line prints.
struct ModelFacts {
  std::string architecture;
  std::int64_t parameters = 0;
  std::int64_t file_bytes = 0;
  double bits_per_weight = 0;
  std::string recipe;
  std::string runner;
  std::string device;   // Backend::describe
  std::string ranks;    // how the model is spread over ranks; empty for one. Then bytes are those of this rank
  std::int32_t dp = 1;  // groups with a KV cache each
  std::int64_t resident_bytes = 0;
  std::int64_t kv_bytes_per_token = 0;
  std::int64_t kv_bytes = 0;  // of the whole cache
  std::string kv_reason;      // why it has that size
  std::int64_t context_length = 0;
  double load_seconds = 0;
};

struct LoadedModel {
  OpenedModel opened;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;  // nullptr when the model has none
  ckpt::GenerationConfig generation;
  std::unique_ptr<model::Decoder> decoder;
  ModelFacts facts;

  // Takes the memory of the KV cache and of one step. The model outlives it. In a run over ranks rank 0 calls it, and
  // all others follow, which returns when rank 0's engine is gone.
  std::unique_ptr<engine::Engine> make_engine() const;
  void follow() const;
};

// Asks every runner for every MoE layer. Throws Error for a damaged checkpoint, an unknown architecture, or a layer
// that no runner can do, with the reasons of each.
OpenedModel open_model(const std::string& path, const LoadOptions& options, const LogSink& log);

// Reads the weights, the tokenizer and the chat template.
LoadedModel load_model(OpenedModel opened, const ProgressSink& progress, const LogSink& log);

// What the decoder of an opened model is built with; for load_moe_layer.
model::DecoderOptions decoder_options(const OpenedModel& opened);

// The lists themselves, for reports and error messages. Runners are in order of preference.
std::vector<model::Family> families();
std::vector<ckpt::Scheme> schemes();
// N of "cuda:N", 0 of "cuda"; Error(usage) for anything else.
int cuda_index(const std::string& device);
std::unique_ptr<Backend> make_backend(const std::string& device, ThreadPool& pool, cpu::Isa isa);
std::vector<std::unique_ptr<Runner>> runners(ThreadPool& pool, cpu::Isa isa);
// Adds the runner of a physical layout when `name` is one's; they are there only when asked for by name.
void add_layout_runner(std::vector<std::unique_ptr<Runner>>& list, const std::string& name, ThreadPool& pool);

// The instruction set to use when at most `limit` ("auto", "scalar", "avx2", "avx512", "avx512_bf16") may be.
cpu::Isa isa_for(const std::string& limit);

}  // namespace sluice::app
