#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "core/rounding.h"
#include "engine/executor.h"
#include "engine/outcome.h"
#include "engine/scheduler.h"

namespace sluice::engine {
namespace {

// Far beyond every use, and small enough that products of sizes fit in 63 bits.
constexpr std::int64_t kMostSequences = std::int64_t{1} << 20;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 36;

void check_range(const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  fail(ErrorCode::usage, fmt::format("{} {}", what, value), fmt::format("{} to {}", least, most));
}

EngineOptions resolve(const model::Decoder& decoder, EngineOptions o) {
  if (o.context_length <= 0) o.context_length = decoder.max_positions();
  if (o.context_length > decoder.max_positions()) {
    fail(ErrorCode::usage, fmt::format("context of {} tokens", o.context_length),
         fmt::format("at most the {} positions that the model was loaded for", decoder.max_positions()));
  }
  if (o.kv_tokens <= 0) o.kv_tokens = o.context_length;
  if (o.max_batch_tokens <= 0) o.max_batch_tokens = o.context_length;
  check_range("context length", o.context_length, 2, kMostTokens);  // a prompt token and its answer
  check_range("KV cache tokens", o.kv_tokens, 1, kMostTokens);
  check_range("running requests", o.max_sequences, 1, kMostSequences);
  check_range("tokens of a step", o.max_batch_tokens, 1, kMostSequences * 16);
  check_range("rows of logits", o.max_logit_rows, 0, kMostSequences);
  o.max_batch_tokens = std::max(o.max_batch_tokens, o.max_sequences);
  o.max_logit_rows = std::max(o.max_logit_rows, o.max_sequences);
  return o;
}

std::int64_t block_tokens(const model::Decoder& decoder) { return decoder.kv_specs().front().block_tokens; }

SchedulerLimits scheduler_limits(const model::Decoder& decoder, const EngineOptions& o) {
  const std::int64_t block = block_tokens(decoder);
  return {o.max_batch_tokens, o.max_sequences, o.max_logit_rows, block, ceil_div(o.kv_tokens, block)};
}

BatchLimits batch_limits(const model::Decoder& decoder, const EngineOptions& o) {
  return {o.max_batch_tokens, o.max_sequences, ceil_div(o.context_length, block_tokens(decoder)), o.max_logit_rows};
}

SampleParams sample_params(const Sequence& s) {
  const Sampling& p = s.request.sampling;
  return {p.temperature, p.top_k, p.top_p, p.min_p, p.seed, static_cast<std::uint64_t>(s.generated())};
}

const char* unit_of(Submission::Refusal refusal) {
  return refusal == Submission::Refusal::queued_tokens ? "prompt tokens" : "requests";
}

// A planned step with what its requests add to it.
struct Step {
  StepPlan plan;
  std::vector<SampleParams> params;      // [sample_rows]
  std::vector<std::int32_t> copy_rows;   // rows of logits for the host, sequence after sequence
  std::vector<std::int64_t> first_copy;  // [S] where each sequence's rows begin in copy_rows
  bool prefill = false;                  // some sequence reads more than the token it generated last
};

}  // namespace

struct Engine::Impl {
  Impl(const model::Decoder& d, const EngineOptions& o)
      : decoder(d),
        options(resolve(d, o)),
        scheduler(scheduler_limits(d, options)),
        executor(d, batch_limits(d, options), options.context_length, scheduler.blocks().total()) {}

  // Throws when the request could never run; cuts max_new_tokens to the context.
  void admit(Request& request) const;
  Submission queue_verdict(std::int64_t prompt_tokens) const;
  Step plan_step();
  std::vector<Event> finish_step(const Step& step, const StepResult& result);
  void count(const Step& step, double seconds, std::int64_t weight_bytes);
  void refresh_gauges();

  const model::Decoder& decoder;
  EngineOptions options;
  Scheduler scheduler;
  Executor executor;
  EngineStats stats;
  std::uint64_t next_id = 1;
};

void Engine::Impl::admit(Request& request) const {
  validate(request, decoder.config().vocab, options.context_length);
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  request.max_new_tokens = std::min(request.max_new_tokens, options.context_length - prompt);
  request.min_new_tokens = std::min(request.min_new_tokens, request.max_new_tokens);
  const std::int64_t longest = prompt + std::max<std::int64_t>(request.max_new_tokens - 1, 0);
  if (scheduler.blocks_for(longest) > scheduler.blocks().total()) {
    fail(ErrorCode::usage,
         fmt::format("a prompt of {} tokens and {} new ones do not fit the KV cache", prompt, request.max_new_tokens),
         fmt::format("at most {} tokens", scheduler.blocks().total() * block_tokens(decoder)),
         "ask for fewer new tokens, or load the model with more KV tokens");
  }
}

// A request that finds an empty queue is always taken.
Submission Engine::Impl::queue_verdict(std::int64_t prompt_tokens) const {
  const std::int64_t waiting = scheduler.waiting_count();
  if (waiting == 0) return {};
  if (options.max_queued_requests > 0 && waiting >= options.max_queued_requests) {
    return {{}, Submission::Refusal::queued_requests, waiting, options.max_queued_requests};
  }
  const std::int64_t tokens = scheduler.waiting_tokens();
  if (options.max_queued_tokens > 0 && tokens + prompt_tokens > options.max_queued_tokens) {
    return {{}, Submission::Refusal::queued_tokens, tokens, options.max_queued_tokens};
  }
  return {};
}

Step Engine::Impl::plan_step() {
  Step step;
  step.plan = scheduler.plan();
  for (const PlanSequence& p : step.plan.sequences) {
    const Sequence& s = *scheduler.running(RequestId{p.request});
    step.prefill = step.prefill || !s.decoding();
    if (p.sample_row >= 0) step.params.push_back(sample_params(s));
    step.first_copy.push_back(std::ssize(step.copy_rows));
    const std::vector<std::int32_t> rows = wanted_rows(p, s);
    step.copy_rows.insert(step.copy_rows.end(), rows.begin(), rows.end());
  }
  return step;
}

std::vector<Event> Engine::Impl::finish_step(const Step& step, const StepResult& result) {
  std::vector<Event> events;
  const std::int64_t vocab = decoder.config().vocab;
  for (std::size_t i = 0; i < step.plan.sequences.size(); ++i) {
    const PlanSequence& p = step.plan.sequences[i];
    const RequestId id{p.request};
    const float* logits = result.logits.data() + step.first_copy[i] * vocab;
    Event event = apply(p, *scheduler.running(id), result, logits, vocab);
    stats.generated_tokens += event.token >= 0 ? 1 : 0;
    if (event.finish != FinishReason::none) {
      ++(event.finish == FinishReason::error ? stats.failed : stats.finished);
      scheduler.remove(id);
    }
    if (event.token >= 0 || event.finish != FinishReason::none) events.push_back(std::move(event));
  }
  return events;
}

void Engine::Impl::count(const Step& step, double seconds, std::int64_t weight_bytes) {
  (step.prefill ? stats.prefill_steps : stats.decode_steps) += 1;
  (step.prefill ? stats.prefill_seconds : stats.decode_seconds) += seconds;
  (step.prefill ? stats.prefill_weight_bytes : stats.decode_weight_bytes) += weight_bytes;
  (step.prefill ? stats.prefill_tokens : stats.decode_tokens) += step.plan.tokens();
}

void Engine::Impl::refresh_gauges() {
  stats.preemptions = scheduler.preemptions();
  stats.running = scheduler.running_count();
  stats.waiting = scheduler.waiting_count();
  stats.waiting_tokens = scheduler.waiting_tokens();
  stats.kv_blocks_used = scheduler.blocks().used();
  stats.kv_blocks_total = scheduler.blocks().total();
  stats.kv_block_tokens = block_tokens(decoder);
}

Engine::Engine(const model::Decoder& decoder, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(decoder, options)) {
  impl_->refresh_gauges();
}

Engine::~Engine() = default;

const EngineOptions& Engine::options() const { return impl_->options; }
ExpertLoad Engine::expert_load() const { return impl_->executor.expert_load(); }
void Engine::clear_prefix_cache() {}
const EngineStats& Engine::stats() const { return impl_->stats; }

bool Engine::idle() const { return impl_->scheduler.running_count() == 0 && impl_->scheduler.waiting_count() == 0; }

Submission Engine::try_submit(Request request) {
  Impl& e = *impl_;
  e.admit(request);
  const Submission refused = e.queue_verdict(std::ssize(request.prompt));
  if (!refused.accepted()) {
    ++e.stats.refused;
    return refused;
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->id = RequestId{e.next_id++};
  sequence->tokens = request.prompt;
  sequence->request = std::move(request);
  sequence->timing.submitted = Timing::Time::clock::now();
  const RequestId id = sequence->id;
  e.scheduler.add(std::move(sequence));
  ++e.stats.submitted;
  e.refresh_gauges();
  return {id};
}

RequestId Engine::submit(Request request) {
  const Submission s = try_submit(std::move(request));
  if (s.accepted()) return s.id;
  fail(ErrorCode::resources, fmt::format("the queue is full: {} {} wait", s.waiting, unit_of(s.refusal)),
       fmt::format("at most {}", s.limit), "try again later");
}

void Engine::cancel(RequestId id) {
  if (impl_->scheduler.remove(id) != nullptr) ++impl_->stats.cancelled;
  impl_->refresh_gauges();
}

std::vector<Event> Engine::step() {
  Impl& e = *impl_;
  if (idle()) return {};
  const auto start = std::chrono::steady_clock::now();
  const Step step = e.plan_step();
  const StepResult result = e.executor.execute(step.plan, step.params, step.copy_rows);
  std::vector<Event> events = e.finish_step(step, result);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  e.count(step, seconds.count(), result.weight_bytes);
  e.refresh_gauges();
  return events;
}

}  // namespace sluice::engine
