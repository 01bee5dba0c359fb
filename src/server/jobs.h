// All requests that are in work: admits them within limits, hands their sequences to the engine, turns its events into
// replies, and takes them back when a client has gone.
//
// Owned by the server; the loop's thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/engine_thread.h"
#include "server/job.h"
#include "server/metrics.h"
#include "server/workers.h"
#include "server/writing.h"

namespace sluice::server {

struct AdmissionLimits {
  std::int64_t running = 0;        // sequences that the engine works on at the same time
  std::int64_t queued = 0;         // further ones
  std::int64_t queued_tokens = 0;  // prompt tokens that have not been begun; 0 = no limit
};

class Jobs {
 public:
  // All outlive this.
  Jobs(EngineThread& engine, Metrics& metrics, Workers& workers)
      : engine_(engine), metrics_(metrics), workers_(workers) {}

  void set_limits(const AdmissionLimits& limits) { limits_ = limits; }
  void set_text(const text::Tokenizer& tokenizer, const ThoughtTokens& thoughts);

  using MakeReply = std::function<std::unique_ptr<Reply>(const Job&)>;
  // Throws ApiError 429 when there is no room, 400 when there never will be or the id is in use.
  void start(Ask ask, const MakeReply& reply, const std::shared_ptr<http::Exchange>& exchange);

  void on_events(std::vector<TicketEvent> events);
  // Ends all: a stream that has begun with an event, the others with this status.
  void abort_all(int status, const std::string& why);
  // Ends the request with this id with what it has so far and the reason "abort"; false when there is none.
  bool abort(const std::string& id);
  // The same for all but health checks.
  void abort_requests();

  std::int64_t most_sequences() const { return limits_.running + limits_.queued; }
  std::int64_t open_requests() const { return std::ssize(jobs_) + writing_; }
  std::int64_t open_sequences() const { return static_cast<std::int64_t>(tickets_.size()); }

 private:
  struct Place {
    Job* job;
    std::size_t choice;
    std::int64_t waiting_tokens;  // of its prompt, until the first event
  };

  void admit(const Ask& ask) const;
  Job* named(const std::string& id) const;  // nullptr when there is none
  void submit(Job& job, std::size_t index);
  void on_event(TicketEvent& event);
  void take_token(Job& job, Choice& choice, engine::Event& event, Delta& delta);
  void end_choice(Job& job, Choice& choice, Delta& delta);
  static void keep(const Job& job, Choice& choice, Delta& delta);
  void send(Job& job, std::size_t choice, Delta& delta);
  void end_early(Job& job);
  void fail(Job& job, int status, const std::string& why);
  void forget_ticket(Ticket ticket);
  void finish(Job& job);
  void write_elsewhere(Job& job);
  void write_part_elsewhere(Job& job, std::size_t choice, Delta&& delta);
  void part_written(const std::shared_ptr<Job>& job, const StreamPart& part);
  void drop(Job* job, const char* outcome);

  EngineThread& engine_;
  Metrics& metrics_;
  Workers& workers_;
  std::int64_t writing_ = 0;  // whole answers that a worker writes
  AdmissionLimits limits_;
  const text::Tokenizer* tokenizer_ = nullptr;
  const ThoughtTokens* thoughts_ = nullptr;
  Ticket next_ticket_ = 1;
  std::int64_t waiting_tokens_ = 0;
  std::unordered_map<Ticket, Place> tickets_;
  std::unordered_map<Job*, std::shared_ptr<Job>> jobs_;
};

}  // namespace sluice::server
