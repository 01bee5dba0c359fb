#include "engine/executor.h"

#include <algorithm>
#include <chrono>

namespace sluice::engine {
namespace {

std::int32_t largest_k(const model::ModelConfig& config) {
  std::int32_t k = 0;
  for (const model::BlockSpec& block : config.layers) {
    if (block.moe() != nullptr) k = std::max(k, block.moe()->routing.slots());
  }
  return k;
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::size_t bytes_of(std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(float); }

ExpertLoad no_load(const model::ModelConfig& config) {
  ExpertLoad load;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const LayerSpec* moe = config.layers[i].moe();
    if (moe == nullptr) continue;
    LayerLoad& layer = load.layers.emplace_back();
    layer.layer = static_cast<std::int32_t>(i);
    layer.choices.resize(static_cast<std::size_t>(moe->routing.total_experts()), 0);
  }
  return load;
}

}  // namespace

Executor::Executor(const model::Decoder& decoder, const ExecutorLimits& limits, bool samples)
    : decoder_(decoder),
      backend_(decoder.backend()),
      samples_(samples),
      batch_(backend_, limits.batch),
      kv_(decoder.make_kv(limits.kv_blocks)),
      workspace_memory_(backend_.alloc(decoder.workspace_bytes(limits.batch.tokens, limits.context))),
      workspace_(workspace_memory_.data(), workspace_memory_.bytes()),
      load_(no_load(decoder.config())),
      max_tokens_(limits.batch.tokens),
      max_slots_(largest_k(decoder.config())) {
  routes_.resize(static_cast<std::size_t>(decoder.config().moe_layers() * max_tokens_ * max_slots_));
  if (!samples) return;
  const std::int64_t rows = limits.batch.logit_rows;
  logits_ = backend_.alloc(bytes_of(rows * decoder.config().vocab));
  tokens_ = backend_.alloc(bytes_of(rows));
  logprobs_ = backend_.alloc(bytes_of(rows));
  top_tokens_ = backend_.alloc(bytes_of(rows * kMostTop));
  top_logprobs_ = backend_.alloc(bytes_of(rows * kMostTop));
}

Executor::~Executor() = default;

std::vector<TokenLogprob> StepResult::top(std::int64_t row) const {
  std::vector<TokenLogprob> list;
  for (std::int64_t i = row * top_width; i < (row + 1) * top_width; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (top_tokens[at] >= 0) list.push_back({top_tokens[at], top_logprobs[at]});
  }
  return list;
}

ExpertLoad Executor::expert_load() const {
  ExpertLoad load = load_;
  for (LayerLoad& layer : load.layers) {
    const Placement* placement = decoder_.placement(layer.layer);
    if (placement == nullptr) continue;
    for (std::int32_t s = 0; s < placement->slots(); ++s)
      layer.expert_of.push_back(raw(placement->expert_of(SlotId{s})));
    layer.ranks.push_back(
        {placement->of_rank(decoder_.plan().experts.index).first, decoder_.slot_load(layer.layer)->rows});
  }
  return load;
}

StepResult Executor::execute(const GroupStep& step) {
  const Stream stream;
  const std::int64_t rows = std::ssize(step.plan.logit_rows);
  const TensorView logits = dense_view(samples_ ? logits_.data() : nullptr, DType::f32, rows, decoder_.config().vocab);
  StepResult result;
  const auto start = Clock::now();
  forward(step.plan, logits, stream);
  result.execute_seconds = seconds_since(start);
  if (samples_) finish(step, logits, result, stream);
  backend_.synchronize(stream);
  if (!samples_) return result;
  result.sample_seconds = seconds_since(start) - result.execute_seconds;
  result.weight_bytes = count_routes(step.plan.tokens());
  return result;
}

// Chooses tokens, and brings to the host what was asked for.
void Executor::finish(const GroupStep& step, const TensorView& logits, StepResult& result, Stream stream) {
  const TraceSpan span(decoder_.trace(), "sample", "rows", logits.rows);
  const std::int64_t vocab = decoder_.config().vocab;
  sample(logits, step.params, result, stream);
  result.logits.resize(step.copy_rows.size() * static_cast<std::size_t>(vocab));
  for (std::size_t i = 0; i < step.copy_rows.size(); ++i) {
    float* to = result.logits.data() + i * static_cast<std::size_t>(vocab);
    backend_.copy_to_host(to, logits.row<float>(step.copy_rows[i]), bytes_of(vocab), stream);
  }
}

void Executor::forward(const StepPlan& plan, const TensorView& logits, Stream stream) {
  const TraceSpan span(decoder_.trace(), "forward", "tokens", plan.tokens());
  const DeviceBatch batch = batch_.upload(plan, stream);
  model::RouteLog routes{routes_.data(), max_tokens_ * max_slots_};
  model::ForwardArgs args;
  args.batch = batch.view;
  args.kv = &kv_;
  args.logit_rows = batch.logit_rows;
  args.logits = logits;
  args.routes = &routes;
  decoder_.forward(args, workspace_, stream);
}

void Executor::sample(const TensorView& logits, const std::vector<SampleParams>& params, StepResult& result,
                      Stream stream) {
  const std::int64_t rows = std::ssize(params);
  if (rows == 0) return;
  for (const SampleParams& p : params) result.top_width = std::max<std::int64_t>(result.top_width, p.top);
  const std::int64_t cells = rows * result.top_width;
  result.tokens.resize(params.size());
  result.logprobs.resize(params.size());
  result.top_tokens.resize(static_cast<std::size_t>(cells));
  result.top_logprobs.resize(static_cast<std::size_t>(cells));
  SampleArgs args;
  args.logits = logits;
  args.params = params.data();
  args.tokens = tokens_.as<std::int32_t>();
  args.logprobs = logprobs_.as<float>();
  args.top_width = result.top_width;
  args.top_tokens = top_tokens_.as<std::int32_t>();
  args.top_logprobs = top_logprobs_.as<float>();
  Workspace::Scope scope(workspace_);
  backend_.sample(args, workspace_, stream);
  backend_.copy_to_host(result.tokens.data(), tokens_.data(), bytes_of(rows), stream);
  backend_.copy_to_host(result.logprobs.data(), logprobs_.data(), bytes_of(rows), stream);
  if (cells == 0) return;
  backend_.copy_to_host(result.top_tokens.data(), top_tokens_.data(), bytes_of(cells), stream);
  backend_.copy_to_host(result.top_logprobs.data(), top_logprobs_.data(), bytes_of(cells), stream);
}

// Adds the ids that routing chose in the last step to the load; the bytes of the weights that the step had to read.
std::int64_t Executor::count_routes(std::int64_t tokens) {
  std::int64_t bytes = decoder_.weight_bytes().per_token;
  const std::int32_t* ids = routes_.data();
  for (LayerLoad& layer : load_.layers) {
    const std::int64_t slots = decoder_.config().layers[static_cast<std::size_t>(layer.layer)].moe()->routing.slots();
    const auto experts = static_cast<std::int32_t>(layer.choices.size());
    step_choices_.assign(layer.choices.size(), 0);
    for (std::int64_t i = 0; i < tokens * slots; ++i) {
      if (ids[i] >= 0 && ids[i] < experts) ++step_choices_[static_cast<std::size_t>(ids[i])];
    }
    std::int64_t chosen = 0;
    for (std::size_t e = 0; e < layer.choices.size(); ++e) {
      layer.choices[e] += step_choices_[e];
      chosen += step_choices_[e] > 0 ? 1 : 0;
    }
    bytes += chosen * decoder_.expert_bytes(layer.layer);
    ids += max_tokens_ * max_slots_;
  }
  load_.tokens += tokens;
  return bytes;
}

}  // namespace sluice::engine
