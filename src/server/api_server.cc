#include "server/api_server.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "core/error.h"
#include "server/api_error.h"

namespace sluice::server {
namespace {

constexpr http::Seconds kDrainPoll{0.02};
constexpr int kMostDrainedPolls = 100;  // for clients that take their time to close

// Connections are descriptors: take what the system lets this process have.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

SamplingDefaults defaults_of(const ckpt::GenerationConfig& g) {
  SamplingDefaults d;
  d.temperature = g.temperature.value_or(d.temperature);
  d.top_k = g.top_k.value_or(d.top_k);
  d.top_p = g.top_p.value_or(d.top_p);
  d.min_p = g.min_p.value_or(d.min_p);
  d.repetition_penalty = g.repetition_penalty.value_or(d.repetition_penalty);
  return d;
}

std::string failure_text(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown";
  }
}

Random seeded(std::uint64_t seed) {
  if (seed != 0) return Random(seed);
  std::random_device device;
  std::seed_seq entropy{device(), device(), device(), device()};
  return Random(entropy);
}

}  // namespace

ApiServer::ApiServer(const ServerOptions& options, LoadModel load, LogSink log)
    : options_(options),
      load_(std::move(load)),
      log_(std::move(log)),
      random_(seeded(options.seed)),
      wakeup_(std::make_unique<http::Wakeup>(loop_, [this] { on_wake(); })),
      engine_([this] { return make_engine(); }, [this] { wakeup_->notify(); }),
      workers_([this] { wakeup_->notify(); }),
      jobs_(engine_, metrics_, workers_),
      log_timer_(loop_, [this] { log_activity(); }),
      drain_limit_(loop_,
                   [this] {
                     drain_over_ = true;
                     say(fmt::format("{} requests were still in work and {} still arriving; they are ended",
                                     open_requests(), http_->arriving()));
                     end_all(503, shutting_down().what());
                   }),
      drain_poll_(loop_, [this] { check_drained(); }) {
  raise_descriptor_limit();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    signals_.push_back(
        std::make_unique<http::Watch>(loop_, http::Watch::Kind::signal, signal, [this, signal] { on_signal(signal); }));
    signals_.back()->enable();
  }
  http_ = std::make_unique<http::Server>(loop_, static_cast<http::Handler&>(*this), options_.http, options_.host,
                                         options_.port);
}

ApiServer::~ApiServer() {
  http_.reset();  // clients are gone before the jobs are
  workers_.stop();
  engine_.stop();
}

Outcome ApiServer::run() {
  engine_.start();
  loop_.run();
  if (const std::exception_ptr failure = engine_.failure()) std::rethrow_exception(failure);
  if (workers_.posted() > 0) outcome_.abandon = true;  // a body that nobody waits for any more
  return outcome_;
}

// On the engine's thread.
std::unique_ptr<engine::Engine> ApiServer::make_engine() {
  load_begin_ = seconds_since_start();
  model_.emplace(load_());
  load_end_ = seconds_since_start();
  auto engine = model_->make_engine();
  engine_options_ = engine->options();
  engine_options_.max_sequences *= model_->opened.plan.sizes.dp;  // of the whole run, as the flags say it
  engine_options_.max_batch_tokens *= model_->opened.plan.sizes.dp;
  return engine;
}

void ApiServer::on_wake() {
  workers_.finish();  // also when the engine has failed: what they answer is waited for
  const EngineThread::State state = engine_.state();
  if (state == EngineThread::State::failed) {
    draining_ = drain_over_ = true;
    http_->drain();
    end_all(500, "the engine has failed: " + failure_text(engine_.failure()));
    return check_drained();  // run() throws what it failed with
  }
  if (state == EngineThread::State::ready && !served_) on_ready();
  jobs_.on_events(engine_.take_events());
}

void ApiServer::on_ready() {
  const engine::EngineStats stats = engine_.stats();
  const ckpt::GenerationConfig& generation = model_->generation;
  served_ = std::make_unique<ServedModel>(*model_->tokenizer, model_->chat_template.get(), model_->opened.config.vocab,
                                          model_->facts.context_length, engine_options_.kv_tokens);
  served_->name = options_.served_model_name.empty() ? model_->opened.path : options_.served_model_name;
  served_->weight_version = options_.weight_version;
  served_->stops = generation.stop_strings;
  served_->eos_ids.assign(generation.eos_token_ids.begin(), generation.eos_token_ids.end());
  if (options_.sampling_from_model) served_->sampling = defaults_of(generation);
  jobs_.set_limits({engine_options_.max_sequences, options_.max_queued_requests, options_.max_queued_tokens});
  jobs_.set_text(served_->tokenizer, served_->thoughts);
  const double now = seconds_since_start();
  say(fmt::format("start: listening and files opened {:.2f} s, weights {:.2f} s, engine and first token {:.2f} s",
                  load_begin_, load_end_ - load_begin_, now - load_end_));
  say(
      fmt::format("ready after {:.2f} s: \"{}\" at http://{}:{}, {} sequences at a time and {} waiting, context {}, KV "
                  "cache {} tokens{}",
                  now, served_->name, options_.host, port(), engine_options_.max_sequences,
                  options_.max_queued_requests, served_->context, stats.kv_blocks_total * stats.kv_block_tokens,
                  model_->facts.dp > 1 ? fmt::format(", spread over {} groups of ranks", model_->facts.dp) : ""));
  if (options_.log_seconds > 0) log_timer_.start(http::Seconds(options_.log_seconds));
}

// The first SIGTERM or SIGINT drains; another one, or SIGHUP, ends at once.
void ApiServer::on_signal(int signal) {
  if (signal != SIGHUP && !draining_) return drain();
  outcome_ = {128 + signal, true};
  loop_.stop();
}

void ApiServer::drain() {
  draining_ = true;
  http_->drain();
  if (!served_) {
    outcome_.abandon = true;  // nothing is in work; the model is not waited for
    return loop_.stop();
  }
  say(fmt::format("shutting down: {} requests in work and {} arriving, for at most {} s", open_requests(),
                  http_->arriving(), options_.drain_seconds));
  drain_limit_.start(http::Seconds(options_.drain_seconds));
  check_drained();
}

void ApiServer::end_all(int status, const std::string& why) {
  refuse_readings(status, why);
  jobs_.abort_all(status, why);
}

// Ends once all answers have left, or soon after the last one was made: a client may keep its side open.
void ApiServer::check_drained() {
  const bool awaited = open_requests() > 0 || (!drain_over_ && http_->arriving() > 0);
  if (!awaited && (http_->connections() == 0 || ++drained_polls_ > kMostDrainedPolls)) return loop_.stop();
  drain_poll_.start(kDrainPoll);
}

void ApiServer::log_activity() {
  const engine::EngineStats e = engine_.stats();
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - std::exchange(logged_, now)).count();
  const std::int64_t made =
      metrics_.generated_tokens_total - std::exchange(logged_tokens_, metrics_.generated_tokens_total);
  const std::int64_t read =
      metrics_.prompt_tokens_total - std::exchange(logged_prompt_tokens_, metrics_.prompt_tokens_total);
  metrics_.generation_rate = static_cast<double>(made) / seconds;
  log_timer_.start(http::Seconds(options_.log_seconds));
  if (made == 0 && read == 0 && open_requests() == 0) return;
  const double kv =
      100.0 * static_cast<double>(e.kv_blocks_used) / static_cast<double>(std::max<std::int64_t>(e.kv_blocks_total, 1));
  say(fmt::format(
      "{} running, {} waiting, {} requests open | prompts {:.0f} tok/s, generated {:.0f} tok/s | KV {:.0f} "
      "% | prefix cache {:.0f} % | {} preemptions",
      e.running, e.waiting, open_requests(), static_cast<double>(read) / seconds, metrics_.generation_rate, kv,
      100.0 * static_cast<double>(e.prefix_hit_tokens) /
          static_cast<double>(std::max<std::int64_t>(e.prompt_tokens, 1)),
      e.preemptions));
}

void ApiServer::say(const std::string& line) const {
  if (log_) log_(LogLevel::info, line);
}

double ApiServer::seconds_since_start() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

}  // namespace sluice::server
