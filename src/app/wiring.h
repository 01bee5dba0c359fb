// The one place that knows all backends, runners, schemes and families by name. Opens and loads a model directory.
//
// Used by the commands, the server and the bindings. Two steps, so that a choice can be shown or refused before any
// weight is read: open_model reads configuration and file headers only and asks every runner; load_model reads the
// weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "engine/engine.h"
#include "model/decoder.h"
#include "model/family.h"
#include "moe/selection.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace sluice::app {

struct LoadOptions {
  std::string dtype = "auto";               // auto, bfloat16 or float32 (recipe f32 on the reference runner)
  std::string moe_runner_backend = "auto";  // auto, or the name of a runner
  std::string isa = "auto";                 // auto, scalar, avx2, avx512, avx512_bf16: the most that may be used
  int threads = 0;                          // 0 = all processors of this process
  bool row_invariant = true;
  engine::EngineOptions engine;  // context_length 0 = the model's
};

// Everything that can be told without reading a weight.
struct OpenedModel {
  std::string path;
  LoadOptions options;
  std::unique_ptr<ckpt::Checkpoint> checkpoint;
  model::ModelConfig config;
  std::unique_ptr<ckpt::WeightSource> weights;
  Recipe recipe = Recipe::bf16;
  DType compute = DType::bf16;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> backend;
  std::vector<std::unique_ptr<Runner>> runners;  // in order of preference
  std::vector<Selection> selections;             // [layers] empty for dense layers
};

// What the start line prints.
struct ModelFacts {
  std::string architecture;
  std::int64_t parameters = 0;
  std::int64_t file_bytes = 0;
  double bits_per_weight = 0;
  std::string recipe;
  std::string runner;
  std::string device;  // Backend::describe
  std::int64_t resident_bytes = 0;
  std::int64_t kv_bytes_per_token = 0;
  std::int64_t kv_bytes = 0;  // of the whole cache
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

  std::unique_ptr<engine::Engine> make_engine() const;
};

OpenedModel open_model(const std::string& path, const LoadOptions& options, const LogSink& log);
LoadedModel load_model(OpenedModel opened, const ProgressSink& progress, const LogSink& log);

// The lists themselves, for `doctor`, `explain` and error messages.
std::vector<model::Family> families();

}  // namespace sluice::app
