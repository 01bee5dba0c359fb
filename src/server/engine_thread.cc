#include "server/engine_thread.h"

#include <iterator>
#include <utility>

#include "core/error.h"
#include "server/cpu_time.h"

namespace sluice::server {
namespace {

constexpr std::size_t kMostEvents = 65536;
constexpr std::chrono::milliseconds kLoadInterval{250};

void warm_up(engine::Engine& engine) {
  engine::Request request;
  request.prompt = {0};
  request.max_new_tokens = 1;
  engine.submit(std::move(request));
  while (!engine.idle()) {
    for (const engine::Event& event : engine.step()) {
      if (event.finish == engine::FinishReason::error) fail(ErrorCode::check_failed, "the first token: " + event.error);
    }
  }
  engine.clear_prefix_cache();
}

}  // namespace

EngineThread::EngineThread(std::function<std::unique_ptr<engine::Engine>()> make, std::function<void()> wake)
    : make_(std::move(make)), wake_(std::move(wake)) {}

EngineThread::~EngineThread() { stop(); }

void EngineThread::start() {
  thread_ = std::thread([this] { run(); });
}

void EngineThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

EngineThread::State EngineThread::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::exception_ptr EngineThread::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void EngineThread::submit(Ticket ticket, engine::Request request) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back({Command::Kind::submit, ticket, std::move(request)});
  }
  changed_.notify_all();
}

void EngineThread::cancel(Ticket ticket) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back({Command::Kind::cancel, ticket, {}});
  }
  changed_.notify_all();
}

void EngineThread::clear_prefix_cache() {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back({Command::Kind::clear_cache, 0, {}});
  }
  changed_.notify_all();
}

std::vector<TicketEvent> EngineThread::take_events() {
  std::vector<TicketEvent> events;
  {
    const std::lock_guard lock(mutex_);
    events.swap(events_);
  }
  if (events.size() >= kMostEvents) changed_.notify_all();
  return events;
}

engine::EngineStats EngineThread::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

double EngineThread::handover_cpu_seconds() const {
  const std::lock_guard lock(mutex_);
  return handover_cpu_seconds_;
}

engine::ExpertLoad EngineThread::expert_load() const {
  const std::lock_guard lock(mutex_);
  return load_;
}

void EngineThread::set_state(State state, std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    state_ = state;
    failure_ = std::move(failure);
  }
  wake_();
}

void EngineThread::run() {
  try {
    engine_ = make_();
    warm_up(*engine_);
    publish({});
    set_state(State::ready, nullptr);
    serve();
    engine_.reset();  // before what it refers to
  } catch (...) {
    set_state(State::failed, std::current_exception());
  }
}

void EngineThread::serve() {
  std::vector<Command> commands;
  while (next_commands(commands)) {
    const double begin = cpu_seconds_of(CLOCK_THREAD_CPUTIME_ID);
    std::vector<TicketEvent> events;
    for (Command& command : commands) apply(command, events);
    commands.clear();
    handover_cpu_ += cpu_seconds_of(CLOCK_THREAD_CPUTIME_ID) - begin;
    if (!engine_->idle()) step(events);
    const double made = cpu_seconds_of(CLOCK_THREAD_CPUTIME_ID);
    publish(std::move(events));
    handover_cpu_ += cpu_seconds_of(CLOCK_THREAD_CPUTIME_ID) - made;
  }
}

// False when it is time to end. Waits while there is nothing to do, or too much that nobody has taken.
bool EngineThread::next_commands(std::vector<Command>& out) {
  std::unique_lock lock(mutex_);
  const bool idle = engine_->idle();
  changed_.wait(lock, [&] {
    if (stopping_) return true;
    return events_.size() < kMostEvents && (!idle || !commands_.empty());
  });
  out.swap(commands_);
  return !stopping_;
}

void EngineThread::apply(Command& command, std::vector<TicketEvent>& out) {
  if (command.kind == Command::Kind::clear_cache) return engine_->clear_prefix_cache();
  if (command.kind == Command::Kind::submit) return submit_now(command, out);
  const auto found = id_of_.find(command.ticket);
  if (found == id_of_.end()) return;  // has ended meanwhile
  engine_->cancel(found->second);
  ticket_of_.erase(static_cast<std::uint64_t>(found->second));
  id_of_.erase(found);
}

void EngineThread::submit_now(Command& command, std::vector<TicketEvent>& out) {
  TicketEvent refused{command.ticket, 0, {}};
  try {
    const engine::Submission submission = engine_->try_submit(std::move(command.request));
    if (submission.accepted()) {
      ticket_of_.emplace(static_cast<std::uint64_t>(submission.id), command.ticket);
      id_of_.emplace(command.ticket, submission.id);
      return;
    }
    refused.refusal = 429;
    refused.event.error = "the queue is full";
  } catch (const Error& e) {
    refused.refusal = e.code() == ErrorCode::usage ? 400 : 500;
    refused.event.error = e.what();
  }
  refused.event.finish = engine::FinishReason::error;
  out.push_back(std::move(refused));
}

void EngineThread::step(std::vector<TicketEvent>& out) {
  for (engine::Event& event : engine_->step()) {
    const auto found = ticket_of_.find(static_cast<std::uint64_t>(event.id));
    if (found == ticket_of_.end()) continue;
    const Ticket ticket = found->second;
    if (event.finish != engine::FinishReason::none) {
      id_of_.erase(ticket);
      ticket_of_.erase(found);
    }
    out.push_back({ticket, 0, std::move(event)});
  }
}

void EngineThread::publish(std::vector<TicketEvent>&& events) {
  const Clock::time_point now = Clock::now();
  const bool load_due = engine_->idle() || now - load_published_ >= kLoadInterval;
  engine::ExpertLoad load;
  if (load_due) load = engine_->expert_load();
  const bool wake = !events.empty();
  {
    const std::lock_guard lock(mutex_);
    stats_ = engine_->stats();
    handover_cpu_seconds_ = handover_cpu_;
    if (load_due) load_ = std::move(load);
    events_.insert(events_.end(), std::make_move_iterator(events.begin()), std::make_move_iterator(events.end()));
  }
  if (load_due) load_published_ = now;
  if (wake) wake_();
}

}  // namespace sluice::server
