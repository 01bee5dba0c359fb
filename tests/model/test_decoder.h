// A decoder on the CPU for tests of model and engine: opened without the wiring, with every choice a parameter.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/scheme.h"
#include "core/thread_pool.h"
#include "cpu/features.h"
#include "model/decoder.h"

namespace sluice::testing {

struct TestDecoderOptions {
  DType compute = DType::bf16;
  std::string runner = "auto";  // "cpu", "reference"
  int threads = 2;
  std::int64_t context = 0;  // 0 = the model's
  std::int32_t block_tokens = 16;
  // Of a rank: rank_run.h.
  RankPlan plan = {};
  Group* world = nullptr;
  Group* attention = nullptr;
  std::function<void(const ckpt::Checkpoint&)> on_open = {};
  // Faults put in on purpose, before weights are read.
  std::function<void(model::ModelConfig&)> change_config = {};
  std::function<void(ckpt::NameMap&)> change_names = {};
};

struct TestDecoder {
  TestDecoderOptions options;
  std::unique_ptr<ckpt::Checkpoint> checkpoint;
  std::unique_ptr<ckpt::WeightSource> weights;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> backend;
  std::vector<std::unique_ptr<Runner>> runners;
  model::ModelConfig config;
  std::unique_ptr<model::Decoder> decoder;
};

TestDecoder load_test_decoder(const std::string& folder, const TestDecoderOptions& options = {},
                              const ProgressSink& progress = {});

// A folder under models/ of the repository.
std::string bundled_model(const std::string& name);

// Logits of every position of a prompt, [n * V], computed in chunks of `chunk` tokens.
std::vector<float> prompt_logits(const model::Decoder& decoder, const std::vector<std::int32_t>& prompt,
                                 std::int64_t chunk);

// Logits of every position of each prompt, computed in one batch whose sequences have KV blocks of their own.
std::vector<std::vector<float>> batch_logits(const model::Decoder& decoder,
                                             const std::vector<std::vector<std::int32_t>>& prompts);

// A step without tokens, as a rank without work takes it; `tokens` = the most that any rank has.
void idle_step(const model::Decoder& decoder, std::int64_t tokens);

// Experts that the tokens of a prompt are routed to, one list [n * k] a MoE layer. All layers have the same k.
std::vector<std::vector<std::int32_t>> prompt_routes(const model::Decoder& decoder,
                                                     const std::vector<std::int32_t>& prompt);

// One prompt of a model's reference.safetensors.
struct ReferencePrompt {
  std::vector<std::int32_t> input_ids;  // [n]
  std::vector<float> last_logits;       // [V]
  std::vector<float> logprob_of_next;   // [n - 1]
  std::vector<std::int32_t> greedy;
};
std::vector<ReferencePrompt> read_references(const std::string& folder);

double relative_l2(const std::vector<float>& found, const std::vector<float>& expected);

}  // namespace sluice::testing
