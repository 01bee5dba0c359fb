#include "model/test_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "checkpoint/safetensors.h"
#include "checkpoint/scheme_compressed_tensors.h"
#include "checkpoint/scheme_fp8.h"
#include "checkpoint/scheme_modelopt.h"
#include "checkpoint/scheme_mxfp4.h"
#include "checkpoint/scheme_plain.h"
#include "cpu/backend.h"
#include "cpu/runner_cpu.h"
#include "model/families.h"
#include "model/rank_part.h"
#include "moe/reference_runner.h"

namespace sluice::testing {
namespace {

Problem problem_for(const LayerSpec& layer, const Backend& backend, Recipe recipe) {
  Problem p;
  p.layer = layer;
  p.recipe = recipe;
  p.device = backend.device();
  p.max_tokens = 512;
  p.row_invariant = true;
  return p;
}

model::DecoderOptions decoder_options(const TestDecoder& t, const TestDecoderOptions& o) {
  model::DecoderOptions d;
  d.backend = t.backend.get();
  d.compute = o.compute;
  d.max_positions = o.context > 0 ? o.context : t.config.max_positions;
  d.block_tokens = o.block_tokens;
  d.plan = o.plan;
  d.world = o.world;
  d.attention = o.attention;
  std::vector<const Runner*> candidates;
  for (const auto& runner : t.runners) candidates.push_back(runner.get());
  for (const model::BlockSpec& block : t.config.layers) {
    d.problems.emplace_back();
    d.runners.push_back(nullptr);
    if (block.moe() == nullptr) continue;
    const auto layer = static_cast<std::int64_t>(d.problems.size()) - 1;
    const Recipe stored = t.weights->expert_recipe(layer);
    const Recipe recipe = o.compute == DType::f32 ? Recipe::f32 : stored;
    d.problems.back() = model::problem_of_rank(problem_for(*block.moe(), *t.backend, recipe), stored, o.plan);
    d.runners.back() = select_runner(candidates, d.problems.back(), o.runner).chosen;
  }
  return d;
}

template <class T>
std::vector<T> read(const ckpt::SafetensorsFile& file, const std::string& name) {
  const ckpt::TensorEntry* entry = file.find(name);
  if (entry == nullptr) throw std::runtime_error(file.path() + " has no " + name);
  std::vector<T> values(entry->bytes / sizeof(T));
  std::memcpy(values.data(), entry->data, entry->bytes);
  return values;
}

// One chunk of a single sequence whose blocks are 0, 1, 2, ...; host memory is device memory on the CPU.
void forward_chunk(const model::Decoder& decoder, model::KvState& kv, const std::vector<std::int32_t>& prompt,
                   std::int64_t begin, std::int64_t end, float* logits, model::RouteLog* routes = nullptr) {
  const std::int64_t tokens = end - begin;
  std::vector<std::int32_t> positions(static_cast<std::size_t>(tokens));
  std::vector<std::int32_t> rows(positions.size());
  std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(begin));
  std::iota(rows.begin(), rows.end(), 0);
  const std::int32_t query_start[] = {0, static_cast<std::int32_t>(tokens)};
  std::vector<std::int32_t> table(prompt.size());
  std::iota(table.begin(), table.end(), 0);
  model::ForwardArgs args;
  args.batch = {tokens,
                1,
                prompt.data() + begin,
                positions.data(),
                query_start,
                table.data(),
                static_cast<std::int64_t>(table.size()),
                end};
  args.kv = &kv;
  args.routes = routes;
  args.logit_rows = rows.data();
  args.logits = dense_view(logits, DType::f32, tokens, decoder.config().vocab);
  const Buffer memory = decoder.backend().alloc(decoder.workspace_bytes(tokens, end));
  Workspace workspace(memory.data(), memory.bytes());
  decoder.forward(args, workspace, {});
}

}  // namespace

TestDecoder load_test_decoder(const std::string& folder, const TestDecoderOptions& options,
                              const ProgressSink& progress) {
  TestDecoder t;
  t.options = options;
  t.checkpoint = ckpt::Checkpoint::open(folder);
  const std::vector<model::Family> families = {
      model::deepseek_family(), model::glm4_moe_family(),  model::gpt_oss_family(),   model::mixtral_family(),
      model::olmoe_family(),    model::qwen2_moe_family(), model::qwen3_moe_family(),
  };
  if (options.on_open) options.on_open(*t.checkpoint);
  const model::Family& family = model::find_family(families, t.checkpoint->config());
  t.config = family.configure(t.checkpoint->config());
  if (options.change_config) options.change_config(t.config);
  ckpt::NameMap names = family.names(t.config);
  if (options.change_names) options.change_names(names);
  const std::vector<ckpt::Scheme> schemes = {ckpt::plain_scheme(), ckpt::modelopt_scheme(),
                                             ckpt::compressed_tensors_scheme(), ckpt::fp8_scheme(),
                                             ckpt::mxfp4_scheme()};
  t.pool = std::make_unique<ThreadPool>(options.threads);
  ckpt::SchemeOptions how;
  how.pool = t.pool.get();
  t.weights = ckpt::find_scheme(schemes, *t.checkpoint).open(*t.checkpoint, std::move(names), how);
  const cpu::Isa isa = cpu::choose_isa(cpu::detect_features());
  t.backend = std::make_unique<cpu::CpuBackend>(*t.pool, isa);
  t.runners.push_back(cpu::make_cpu_runner(*t.pool, isa));
  t.runners.push_back(make_reference_runner(t.pool.get()));
  t.decoder = model::load_decoder(t.config, *t.weights, decoder_options(t, options), progress);
  return t;
}

std::string bundled_model(const std::string& name) { return std::string(SLUICE_SOURCE_DIR) + "/models/" + name; }

std::vector<float> prompt_logits(const model::Decoder& decoder, const std::vector<std::int32_t>& prompt,
                                 std::int64_t chunk) {
  const auto n = static_cast<std::int64_t>(prompt.size());
  const std::int64_t vocab = decoder.config().vocab;
  model::KvState kv = decoder.make_kv(n);
  std::vector<float> logits(static_cast<std::size_t>(n * vocab));
  for (std::int64_t begin = 0; begin < n; begin += chunk) {
    forward_chunk(decoder, kv, prompt, begin, std::min(begin + chunk, n), logits.data() + begin * vocab);
  }
  return logits;
}

void idle_step(const model::Decoder& decoder, std::int64_t tokens) {
  model::KvState kv = decoder.make_kv(1);
  const Buffer memory = decoder.backend().alloc(decoder.workspace_bytes(tokens, 1));
  Workspace workspace(memory.data(), memory.bytes());
  const std::int32_t query_start = 0;
  model::ForwardArgs args;
  args.batch.query_start = &query_start;
  args.kv = &kv;
  decoder.forward(args, workspace, {});
}

std::vector<std::vector<float>> batch_logits(const model::Decoder& decoder,
                                             const std::vector<std::vector<std::int32_t>>& prompts) {
  std::vector<std::int32_t> ids, positions, rows, query_start = {0}, table;
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  for (const auto& prompt : prompts) {
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    for (std::size_t i = 0; i < prompt.size(); ++i) positions.push_back(static_cast<std::int32_t>(i));
    query_start.push_back(static_cast<std::int32_t>(ids.size()));
    for (std::size_t i = 0; i < longest; ++i) table.push_back(static_cast<std::int32_t>(table.size()));
  }
  rows.resize(ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  const auto tokens = static_cast<std::int64_t>(ids.size());
  const std::int64_t vocab = decoder.config().vocab;
  const auto context = static_cast<std::int64_t>(longest);
  std::vector<float> logits(static_cast<std::size_t>(tokens * vocab));
  model::KvState kv = decoder.make_kv(static_cast<std::int64_t>(table.size()));
  model::ForwardArgs args;
  args.batch = {tokens,
                static_cast<std::int64_t>(prompts.size()),
                ids.data(),
                positions.data(),
                query_start.data(),
                table.data(),
                context,
                context};
  args.kv = &kv;
  args.logit_rows = rows.data();
  args.logits = dense_view(logits.data(), DType::f32, tokens, vocab);
  const Buffer memory = decoder.backend().alloc(decoder.workspace_bytes(tokens, context));
  Workspace workspace(memory.data(), memory.bytes());
  decoder.forward(args, workspace, {});
  std::vector<std::vector<float>> out;
  for (std::size_t s = 0; s < prompts.size(); ++s) {
    out.emplace_back(logits.begin() + query_start[s] * vocab, logits.begin() + query_start[s + 1] * vocab);
  }
  return out;
}

std::vector<std::vector<std::int32_t>> prompt_routes(const model::Decoder& decoder,
                                                     const std::vector<std::int32_t>& prompt) {
  const auto n = static_cast<std::int64_t>(prompt.size());
  const model::ModelConfig& config = decoder.config();
  const std::int64_t count = n * config.layers.front().moe()->routing.slots();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(config.moe_layers() * count));
  model::RouteLog log{ids.data(), count};
  model::KvState kv = decoder.make_kv(n);
  std::vector<float> logits(static_cast<std::size_t>(n * config.vocab));
  forward_chunk(decoder, kv, prompt, 0, n, logits.data(), &log);
  std::vector<std::vector<std::int32_t>> layers;
  for (auto at = ids.begin(); at != ids.end(); at += count) layers.emplace_back(at, at + count);
  return layers;
}

std::vector<ReferencePrompt> read_references(const std::string& folder) {
  const ckpt::SafetensorsFile file(folder + "/reference.safetensors");
  std::vector<ReferencePrompt> prompts;
  for (int i = 0; file.find("prompt" + std::to_string(i) + ".input_ids") != nullptr; ++i) {
    const std::string p = "prompt" + std::to_string(i);
    prompts.push_back({read<std::int32_t>(file, p + ".input_ids"), read<float>(file, p + ".last_logits"),
                       read<float>(file, p + ".logprob_of_next"), read<std::int32_t>(file, p + ".greedy")});
  }
  return prompts;
}

double relative_l2(const std::vector<float>& found, const std::vector<float>& expected) {
  if (found.size() != expected.size()) throw std::runtime_error("lengths differ");
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double d = static_cast<double>(found[i]) - expected[i];
    difference += d * d;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace sluice::testing
