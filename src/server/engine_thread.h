// The thread that owns the engine. Loads the model, generates one token, then takes commands and makes steps.
//
// The loop's thread submits and cancels, and takes events after a wake-up; nothing here makes it wait. Commands are
// bounded by whoever admits requests (one submit and at most one cancel for each), events by a limit at which the
// engine waits for the loop. All members may be called from any thread but start, stop and the destructor.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "server/ticket.h"

namespace sluice::server {

class EngineThread {
 public:
  enum class State : std::uint8_t { loading, ready, failed };

  // `make` runs on the thread: it loads the model and makes the engine. `wake` is called from the thread when the state
  // has changed or events are there.
  EngineThread(std::function<std::unique_ptr<engine::Engine>()> make, std::function<void()> wake);
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  void start();
  void stop();  // after the step that is being made; does not wait for a model that is being loaded to be ready

  State state() const;
  std::exception_ptr failure() const;

  void submit(Ticket ticket, engine::Request request);
  void cancel(Ticket ticket);
  void clear_prefix_cache();
  std::vector<TicketEvent> take_events();

  engine::EngineStats stats() const;       // after the last step
  double handover_cpu_seconds() const;     // processor time between steps: commands, events, waking the loop
  engine::ExpertLoad expert_load() const;  // at most a quarter of a second old; exact when nothing runs

 private:
  struct Command {
    enum class Kind : std::uint8_t { submit, cancel, clear_cache } kind = Kind::submit;
    Ticket ticket = 0;
    engine::Request request;
  };
  using Clock = std::chrono::steady_clock;

  void run();
  void serve();
  bool next_commands(std::vector<Command>& out);
  void apply(Command& command, std::vector<TicketEvent>& out);
  void submit_now(Command& command, std::vector<TicketEvent>& out);
  void step(std::vector<TicketEvent>& out);
  void publish(std::vector<TicketEvent>&& events);
  void set_state(State state, std::exception_ptr failure);

  std::function<std::unique_ptr<engine::Engine>()> make_;
  std::function<void()> wake_;
  std::thread thread_;

  // Of the thread alone.
  std::unique_ptr<engine::Engine> engine_;
  std::unordered_map<std::uint64_t, Ticket> ticket_of_;
  std::unordered_map<Ticket, engine::RequestId> id_of_;
  Clock::time_point load_published_{};
  double handover_cpu_ = 0;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  State state_ = State::loading;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::vector<Command> commands_;
  std::vector<TicketEvent> events_;
  engine::EngineStats stats_;
  double handover_cpu_seconds_ = 0;
  engine::ExpertLoad load_;
};

}  // namespace sluice::server
