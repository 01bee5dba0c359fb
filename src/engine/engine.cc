#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <span>

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
  return {o.max_batch_tokens,           o.max_sequences, o.max_logit_rows, block,
          ceil_div(o.kv_tokens, block), o.prefix_cache,  o.policy};
}

BatchLimits batch_limits(const model::Decoder& decoder, const EngineOptions& o) {
  return {o.max_batch_tokens, o.max_sequences, ceil_div(o.context_length, block_tokens(decoder)), o.max_logit_rows};
}

const char* unit_of(Submission::Refusal refusal) {
  return refusal == Submission::Refusal::queued_tokens ? "prompt tokens" : "requests";
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A planned step with what its requests add to it.
struct Step {
  ScheduledStep scheduled;
  std::vector<SampleParams> params;     // [logit rows]
  std::vector<std::int32_t> copy_rows;  // sampled rows whose logits the host wants, sequence after sequence
  bool prefill = false;                 // some sequence reads more than the token it generated last

  const StepPlan& plan() const { return scheduled.plan; }
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
  void start(Sequence& sequence, Clock::time_point now);
  void close(Event& event, Sequence& sequence);
  void count(const Step& step, double seconds, const StepResult& result);
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

// A request that finds an empty queue is always taken. Those that wait for nothing but the next step do not count.
Submission Engine::Impl::queue_verdict(std::int64_t prompt_tokens) const {
  const std::int64_t waiting = scheduler.waiting_count() - (options.max_sequences - scheduler.running_count());
  if (waiting < 0 || scheduler.waiting_count() == 0) return {};
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
  const auto now = Clock::now();
  Step step;
  step.scheduled = scheduler.plan();
  step.params.resize(step.plan().logit_rows.size());
  for (std::size_t i = 0; i < step.scheduled.sequences.size(); ++i) {
    Sequence& s = *step.scheduled.sequences[i];
    const PlanSequence& p = step.plan().sequences[i];
    step.prefill = step.prefill || !s.decoding();
    if (s.timing.scheduled == Timing::Time{}) start(s, now);
    set_params(p, s, step.params);
    if (shows_logits(p, s)) step.copy_rows.push_back(p.sample_row);
  }
  return step;
}

// The first step that computes some of it.
void Engine::Impl::start(Sequence& sequence, Clock::time_point now) {
  sequence.timing.scheduled = now;
  stats.prompt_tokens += sequence.prompt_length();
}

std::vector<Event> Engine::Impl::finish_step(const Step& step, const StepResult& result) {
  std::vector<Event> events;
  std::span<const float> logits(result.logits);
  const auto vocab = static_cast<std::size_t>(decoder.config().vocab);
  for (std::size_t i = 0; i < step.scheduled.sequences.size(); ++i) {
    Sequence& s = *step.scheduled.sequences[i];
    const PlanSequence& p = step.plan().sequences[i];
    const bool shows = shows_logits(p, s);
    Event event = apply(p, s, result, shows ? logits.first(vocab) : std::span<const float>());
    if (shows) logits = logits.subspan(vocab);
    if (event.finish != FinishReason::error) scheduler.publish(s);
    const bool tells = event.token >= 0 || event.finish != FinishReason::none;
    close(event, s);
    if (tells) events.push_back(std::move(event));
  }
  return events;
}

// Fills in what every event carries, and lets go of a sequence that has ended.
void Engine::Impl::close(Event& event, Sequence& sequence) {
  event.cached_tokens = sequence.cached_tokens;
  event.timing = sequence.timing;
  stats.generated_tokens += event.token >= 0 ? 1 : 0;
  if (event.finish == FinishReason::none) return;
  ++(event.finish == FinishReason::error ? stats.failed : stats.finished);
  scheduler.remove(sequence.id);
}

void Engine::Impl::count(const Step& step, double seconds, const StepResult& result) {
  (step.prefill ? stats.prefill_steps : stats.decode_steps) += 1;
  (step.prefill ? stats.prefill_seconds : stats.decode_seconds) += seconds;
  (step.prefill ? stats.prefill_weight_bytes : stats.decode_weight_bytes) += result.weight_bytes;
  (step.prefill ? stats.prefill_tokens : stats.decode_tokens) += step.plan().tokens();
  stats.time.execute += result.execute_seconds;
  stats.time.sample += result.sample_seconds;
}

void Engine::Impl::refresh_gauges() {
  stats.preemptions = scheduler.preemptions();
  stats.running = scheduler.running_count();
  stats.waiting = scheduler.waiting_count();
  stats.waiting_tokens = scheduler.waiting_tokens();
  stats.kv_blocks_used = scheduler.blocks().used();
  stats.kv_blocks_cached = scheduler.blocks().idle();
  stats.prefix_hit_tokens = scheduler.prefix_hit_tokens();
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
void Engine::clear_prefix_cache() {
  impl_->scheduler.clear_prefix_cache();
  impl_->refresh_gauges();
}

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
  auto sequence = std::make_unique<Sequence>(RequestId{e.next_id++}, std::move(request));
  sequence->timing.submitted = Clock::now();
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
  const auto start = Clock::now();
  const Step step = e.plan_step();
  const double scheduled = seconds_since(start);
  const StepResult result = e.executor.execute(step.plan(), step.params, step.copy_rows);
  std::vector<Event> events = e.finish_step(step, result);
  const double seconds = seconds_since(start);
  e.stats.time.schedule += scheduled;
  e.stats.time.output += seconds - scheduled - result.execute_seconds - result.sample_seconds;
  e.count(step, seconds, result);
  e.refresh_gauges();
  return events;
}

}  // namespace sluice::engine
