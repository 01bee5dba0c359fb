// The API server: routes requests, holds the model behind an engine thread, and lives from start to drain.
//
// Made and run by `sluice serve`; everything but the engine and the readers of bodies runs on the thread that calls
// run(). It listens before the model is loaded, so that a supervisor sees a live process; until a first token has been
// generated /ready and all that needs the model answer 503.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "app/wiring.h"
#include "core/log.h"
#include "http/loop.h"
#include "http/server.h"
#include "server/engine_thread.h"
#include "server/jobs.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/reading.h"
#include "server/sampling_fields.h"
#include "server/served_model.h"
#include "server/workers.h"

namespace sluice::server {

struct Route;

// How run() ended.
struct Outcome {
  int exit_code = 0;
  bool abandon = false;  // the engine's thread still works: the process is to end without waiting for it
};

class ApiServer : private http::Handler {
 public:
  using LoadModel = std::function<app::LoadedModel()>;

  // Listens at once. `load` runs on the engine's thread. Throws Error(resources) when the address cannot be had.
  ApiServer(const ServerOptions& options, LoadModel load, LogSink log);
  ~ApiServer() override;

  // Until a signal has ended it. Throws what loading the model threw.
  Outcome run();

  int port() const { return http_->port(); }

 private:
  friend struct Route;
  using Exchange = std::shared_ptr<http::Exchange>;

  std::optional<http::Response> admit(const http::Request& request) override;
  void handle(const Exchange& exchange) override;
  http::Response refusal(int status, const std::string& why) override;

  http::Headers more_headers(const http::Request& request) const override;

  // routes.cc
  void check_admission(const http::Request& request) const;
  void check_key(const http::Request& request) const;
  void guarded(const Exchange& exchange, const std::function<void()>& answer);
  void options(const Exchange& exchange);
  void reply(const Exchange& exchange, int status, std::string body, const char* type = "application/json");

  // Bodies; api_routes.cc. The readers run on a worker's thread and return what the loop is to do.
  void read_body(const Route& route, const Exchange& exchange);
  void on_read(Reading& reading);
  void refuse_readings(int status, const std::string& why);
  void start(Ask ask, const Jobs::MakeReply& make_reply, const Reading& reading);
  using AnswerOf = std::unique_ptr<Reply> (*)(const Job& job, const ServedModel& model);
  static Finish start_with(Ask ask, AnswerOf answer);
  static Finish completions(const std::string& body, const ServedModel& model, Random& random);
  static Finish chat_completions(const std::string& body, const ServedModel& model, Random& random);
  static Finish generate(const std::string& body, const ServedModel& model, Random& random);
  static Finish tokenize(const std::string& body, const ServedModel& model, Random& random);
  static Finish detokenize(const std::string& body, const ServedModel& model, Random& random);
  static Finish apply_template(const std::string& body, const ServedModel& model, Random& random);
  static Finish abort_request(const std::string& body, const ServedModel& model, Random& random);
  static Finish answer_with(std::string body);  // with 200
  void abort_by_id(const std::string& id);
  void forget_early_aborts();

  // What the other routes do; api_routes.cc and info_routes.cc.
  void health(const Exchange& exchange);
  void ready(const Exchange& exchange);
  void health_generate(const Exchange& exchange);
  void models(const Exchange& exchange);
  void one_model(const Exchange& exchange);
  void model_info(const Exchange& exchange);
  void server_info(const Exchange& exchange);
  void version(const Exchange& exchange);
  void metrics_page(const Exchange& exchange);
  void expert_load(const Exchange& exchange);
  void flush_cache(const Exchange& exchange);
  Json model_card() const;

  // api_server.cc
  std::unique_ptr<engine::Engine> make_engine();
  void on_wake();
  void on_ready();
  void on_signal(int signal);
  void drain();
  void end_all(int status, const std::string& why);
  void check_drained();
  std::int64_t open_requests() const { return jobs_.open_requests() + std::ssize(readings_); }
  void log_activity();
  void say(const std::string& line) const;
  double seconds_since_start() const;

  ServerOptions options_;
  LoadModel load_;
  LogSink log_;
  Clock::time_point begin_ = Clock::now();
  Random random_;
  http::Loop loop_;
  std::unique_ptr<http::Wakeup> wakeup_;
  EngineThread engine_;
  Metrics metrics_;
  std::unique_ptr<ServedModel> served_;    // once ready; outlives those who read bodies
  std::unordered_set<Reading*> readings_;  // those of them that are to be answered
  std::size_t reading_bytes_ = 0;
  std::unordered_map<std::string, std::uint64_t> aborted_early_;  // ids, and the newest body that was being read then
  std::uint64_t newest_reading_ = 0;                              // bodies are numbered from 1
  Workers workers_;
  Jobs jobs_;
  std::vector<std::unique_ptr<http::Watch>> signals_;
  http::Timer log_timer_;
  http::Timer drain_limit_;
  http::Timer drain_poll_;
  std::unique_ptr<http::Server> http_;

  std::optional<app::LoadedModel> model_;  // written by the engine's thread before it is ready
  engine::EngineOptions engine_options_;   // likewise, resolved
  double load_begin_ = 0, load_end_ = 0;   // likewise, seconds since the start
  bool draining_ = false;
  bool drain_over_ = false;  // its time
  int drained_polls_ = 0;
  Outcome outcome_;
  std::int64_t logged_tokens_ = 0;
  std::int64_t logged_prompt_tokens_ = 0;
  Clock::time_point logged_ = begin_;
};

}  // namespace sluice::server
