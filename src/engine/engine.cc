#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>

#include "core/error.h"
#include "engine/executor.h"
#include "engine/groups.h"
#include "engine/leader.h"
#include "engine/limits.h"
#include "engine/outcome.h"

namespace sluice::engine {
namespace {

SchedulerLimits scheduler_limits(const model::Decoder& decoder, const EngineOptions& o) {
  return {o.max_batch_tokens,
          o.max_sequences,
          o.max_logit_rows,
          block_tokens(decoder),
          executor_limits(decoder, o).kv_blocks,
          o.prefix_cache,
          o.policy};
}

const char* unit_of(Submission::Refusal refusal) {
  return refusal == Submission::Refusal::queued_tokens ? "prompt tokens" : "requests";
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A planned step of all groups.
struct Step {
  StepMessage message{StepCommand::step};
  std::vector<std::vector<Sequence*>> sequences;  // [groups][S] as in the plans
  std::int64_t tokens = 0;
  bool prefill = false;  // some sequence reads more than the token it generated last
};

}  // namespace

struct Engine::Impl {
  Impl(const model::Decoder& d, const EngineOptions& o, const EngineRanks& r)
      : decoder(d),
        options(resolve(d, o)),
        groups(scheduler_limits(d, options), r.several() ? r.plan.dp.count : 1),
        executor(d, executor_limits(d, options), true) {
    if (r.several()) leader.emplace(r);
  }

  // Throws when the request could never run; cuts max_new_tokens to the context.
  void admit(Request& request) const;
  Submission queue_verdict(std::int64_t prompt_tokens) const;
  Step plan_step();
  void plan_group(Scheduler& scheduler, Step& step);
  void start(Sequence& sequence, Clock::time_point now);
  std::vector<StepResult> execute(const Step& step);
  std::vector<Event> finish_step(const Step& step, const std::vector<StepResult>& results);
  void finish_group(const Step& step, std::size_t group, const StepResult& result, std::vector<Event>& events);
  void close(Event& event, Sequence& sequence, Scheduler& scheduler);
  void count(const Step& step, double seconds, const std::vector<StepResult>& results);

  const model::Decoder& decoder;
  EngineOptions options;
  Groups groups;
  Executor executor;
  std::optional<Leader> leader;  // where there are several ranks
  EngineStats stats;
  std::uint64_t next_id = 1;
};

void Engine::Impl::admit(Request& request) const {
  validate(request, decoder.config().vocab, options.context_length);
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  request.max_new_tokens = std::min(request.max_new_tokens, options.context_length - prompt);
  request.min_new_tokens = std::min(request.min_new_tokens, request.max_new_tokens);
  const std::int64_t longest = prompt + std::max<std::int64_t>(request.max_new_tokens - 1, 0);
  if (groups.blocks_for(longest) > groups.blocks_of_one()) {
    fail(ErrorCode::usage,
         fmt::format("a prompt of {} tokens and {} new ones do not fit the KV cache", prompt, request.max_new_tokens),
         fmt::format("at most {} tokens", groups.blocks_of_one() * block_tokens(decoder)),
         "ask for fewer new tokens, or load the model with more KV tokens");
  }
}

// A request that finds an empty queue is always taken. Those that wait for nothing but the next step do not count.
Submission Engine::Impl::queue_verdict(std::int64_t prompt_tokens) const {
  const std::int64_t places = options.max_sequences * static_cast<std::int64_t>(groups.count());
  const std::int64_t waiting = groups.waiting_count() - (places - groups.running_count());
  if (waiting < 0 || groups.waiting_count() == 0) return {};
  if (options.max_queued_requests > 0 && waiting >= options.max_queued_requests) {
    return {{}, Submission::Refusal::queued_requests, waiting, options.max_queued_requests};
  }
  const std::int64_t tokens = groups.waiting_tokens();
  if (options.max_queued_tokens > 0 && tokens + prompt_tokens > options.max_queued_tokens) {
    return {{}, Submission::Refusal::queued_tokens, tokens, options.max_queued_tokens};
  }
  return {};
}

Step Engine::Impl::plan_step() {
  const TraceSpan span(decoder.trace(), "schedule");
  Step step;
  for (std::size_t g = 0; g < groups.count(); ++g) plan_group(groups[g], step);
  return step;
}

void Engine::Impl::plan_group(Scheduler& scheduler, Step& step) {
  const auto now = Clock::now();
  ScheduledStep scheduled = scheduler.plan();
  GroupStep& work = step.message.groups.emplace_back();
  work.plan = std::move(scheduled.plan);
  work.params.resize(work.plan.logit_rows.size());
  for (std::size_t i = 0; i < scheduled.sequences.size(); ++i) {
    Sequence& s = *scheduled.sequences[i];
    const PlanSequence& p = work.plan.sequences[i];
    step.prefill = step.prefill || !s.decoding();
    if (s.timing.scheduled == Timing::Time{}) start(s, now);
    set_params(p, s, work.params);
    if (shows_logits(p, s)) work.copy_rows.push_back(p.sample_row);
  }
  step.tokens += work.plan.tokens();
  step.sequences.push_back(std::move(scheduled.sequences));
}

// The first step that computes some of it.
void Engine::Impl::start(Sequence& sequence, Clock::time_point now) {
  sequence.timing.scheduled = now;
  stats.prompt_tokens += sequence.prompt_length();
}

// Group by group. Ranks that fail in the middle of a step cannot go on together.
std::vector<StepResult> Engine::Impl::execute(const Step& step) {
  const GroupStep& own = step.message.groups.front();
  if (!leader) {
    std::vector<StepResult> results;
    results.push_back(executor.execute(own));
    return results;
  }
  const std::unique_lock turn = leader->turn();
  try {
    leader->send(step.message);
    return leader->collect(step.message, executor.execute(own), decoder.config().vocab);
  } catch (...) {
    leader->abandon();
    throw;
  }
}

std::vector<Event> Engine::Impl::finish_step(const Step& step, const std::vector<StepResult>& results) {
  const TraceSpan span(decoder.trace(), "output tokens");
  std::vector<Event> events;
  for (std::size_t g = 0; g < results.size(); ++g) finish_group(step, g, results[g], events);
  return events;
}

void Engine::Impl::finish_group(const Step& step, std::size_t group, const StepResult& result,
                                std::vector<Event>& events) {
  std::span<const float> logits(result.logits);
  const auto vocab = static_cast<std::size_t>(decoder.config().vocab);
  for (std::size_t i = 0; i < step.sequences[group].size(); ++i) {
    Sequence& s = *step.sequences[group][i];
    const PlanSequence& p = step.message.groups[group].plan.sequences[i];
    const bool shows = shows_logits(p, s);
    Event event = apply(p, s, result, shows ? logits.first(vocab) : std::span<const float>());
    if (shows) logits = logits.subspan(vocab);
    if (event.finish != FinishReason::error) groups[group].publish(s);
    const bool tells = event.token >= 0 || event.finish != FinishReason::none;
    close(event, s, groups[group]);
    if (tells) events.push_back(std::move(event));
  }
}

// Fills in what every event carries, and lets go of a sequence that has ended.
void Engine::Impl::close(Event& event, Sequence& sequence, Scheduler& scheduler) {
  event.cached_tokens = sequence.cached_tokens;
  event.timing = sequence.timing;
  stats.generated_tokens += event.token >= 0 ? 1 : 0;
  if (event.finish == FinishReason::none) return;
  ++(event.finish == FinishReason::error ? stats.failed : stats.finished);
  scheduler.remove(sequence.id);
}

void Engine::Impl::count(const Step& step, double seconds, const std::vector<StepResult>& results) {
  (step.prefill ? stats.prefill_steps : stats.decode_steps) += 1;
  (step.prefill ? stats.prefill_seconds : stats.decode_seconds) += seconds;
  (step.prefill ? stats.prefill_tokens : stats.decode_tokens) += step.tokens;
  for (const StepResult& result : results) {
    (step.prefill ? stats.prefill_weight_bytes : stats.decode_weight_bytes) += result.weight_bytes;
  }
  stats.time.execute += results.front().execute_seconds;
  stats.time.sample += results.front().sample_seconds;
}

Engine::Engine(const model::Decoder& decoder, const EngineOptions& options, const EngineRanks& ranks)
    : impl_(std::make_unique<Impl>(decoder, options, ranks)) {
  impl_->groups.fill_gauges(impl_->stats);
}

Engine::~Engine() = default;

const EngineOptions& Engine::options() const { return impl_->options; }

ExpertLoad Engine::expert_load() const {
  Impl& e = *impl_;
  if (!e.leader) return e.executor.expert_load();
  const std::unique_lock turn = e.leader->turn();
  e.leader->send(StepMessage(StepCommand::report_load));
  return e.leader->collect_load(e.executor.expert_load());
}

void Engine::clear_prefix_cache() {
  impl_->groups.clear_prefix_cache();
  impl_->groups.fill_gauges(impl_->stats);
}

const EngineStats& Engine::stats() const { return impl_->stats; }

bool Engine::idle() const { return impl_->groups.idle(); }

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
  e.groups.add(std::move(sequence));
  ++e.stats.submitted;
  e.groups.fill_gauges(e.stats);
  return {id};
}

RequestId Engine::submit(Request request) {
  const Submission s = try_submit(std::move(request));
  if (s.accepted()) return s.id;
  fail(ErrorCode::resources, fmt::format("the queue is full: {} {} wait", s.waiting, unit_of(s.refusal)),
       fmt::format("at most {}", s.limit), "try again later");
}

void Engine::cancel(RequestId id) {
  if (impl_->groups.remove(id)) ++impl_->stats.cancelled;
  impl_->groups.fill_gauges(impl_->stats);
}

std::vector<Event> Engine::step() {
  Impl& e = *impl_;
  if (idle()) return {};
  const TraceSpan span(e.decoder.trace(), "step");
  const auto start = Clock::now();
  const Step step = e.plan_step();
  const double scheduled = seconds_since(start);
  const std::vector<StepResult> results = e.execute(step);
  std::vector<Event> events = e.finish_step(step, results);
  const double seconds = seconds_since(start);
  const double executed = results.front().execute_seconds + results.front().sample_seconds;
  e.stats.time.schedule += scheduled;
  e.stats.time.output += seconds - scheduled - executed;
  e.count(step, seconds, results);
  e.groups.fill_gauges(e.stats);
  return events;
}

}  // namespace sluice::engine
