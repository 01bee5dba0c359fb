// sluice serve: opens the model, listens, loads on the engine's thread, and serves until a signal.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "app/ranks.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "cli/traced.h"
#include "core/error.h"
#include "server/api_server.h"

namespace sluice::cli {
namespace {

constexpr std::size_t kArrivingBodies = 16;  // of the largest size

LogLevel parse_level(const std::string& name) {
  if (name == "debug") return LogLevel::debug;
  if (name == "info") return LogLevel::info;
  if (name == "warning") return LogLevel::warning;
  if (name == "error" || name == "critical") return LogLevel::error;
  fail(ErrorCode::usage, "--log-level " + name, "debug, info, warning or error");
}

std::string clock_text() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

LogSink timed_log(LogLevel least) {
  return [least](LogLevel level, std::string_view message) {
    if (level < least) return;
    static constexpr const char* kNames[] = {"debug: ", "", "warning: ", "error: "};
    say(fmt::format("[{}] {}{}", clock_text(), kNames[static_cast<int>(level)], printable(message)));
  };
}

// "*", "none", "http://a,http://b", or vLLM's form of a list: ["*"].
std::vector<std::string> origins_of(const std::string& text) {
  std::vector<std::string> origins;
  std::string rest = text;
  if (rest.starts_with('[')) std::erase_if(rest, [](char c) { return c == '[' || c == ']' || c == '"' || c == ' '; });
  std::istringstream list(rest);
  for (std::string origin; std::getline(list, origin, ',');) {
    const bool known = origin == "*" || origin == "none" || origin == "null" || origin.find("://") != std::string::npos;
    if (!known || origin.ends_with('/')) {
      fail(ErrorCode::usage, "--allowed-origins " + text, "*, none, or origins like http://localhost:3000");
    }
    if (origin != "none") origins.push_back(origin);
  }
  return origins;
}

server::ServerOptions server_options(const Options& o) {
  server::ServerOptions s;
  s.host = o.host;
  s.port = static_cast<int>(o.port);
  s.api_key = o.api_key;
  s.served_model_name = o.served_model_name;
  s.weight_version = o.weight_version;
  s.allowed_origins = origins_of(o.allowed_origins);
  if (o.sampling_defaults != "model" && o.sampling_defaults != "openai") {
    fail(ErrorCode::usage, "--sampling-defaults " + o.sampling_defaults, "model or openai");
  }
  s.sampling_from_model = o.sampling_defaults == "model";
  s.metrics = o.enable_metrics;
  s.max_queued_requests = o.max_queued_requests;
  s.max_queued_tokens = o.max_queued_tokens;
  s.drain_seconds = o.drain_timeout;
  s.log_seconds = o.log_interval;
  s.seed = static_cast<std::uint64_t>(o.seed);
  s.http.connections = o.max_connections;
  s.http.unsent_bytes = static_cast<std::size_t>(o.max_unsent_bytes);
  s.http.request_time = http::Seconds(o.request_timeout);
  s.http.idle_time = http::Seconds(o.keep_alive_timeout);
  s.http.write_time = http::Seconds(o.write_timeout);
  s.http.parser.body_bytes = static_cast<std::size_t>(o.max_body_bytes);
  s.http.arriving_bytes = kArrivingBodies * s.http.parser.body_bytes;
  s.http.parser.header_bytes = static_cast<std::size_t>(o.max_header_bytes);
  return s;
}

}  // namespace

int serve_command(const Options& given) {
  const Options options = with_command_defaults(given);
  Terminal terminal(options.quiet);
  const LogSink log = timed_log(options.quiet ? LogLevel::warning : parse_level(options.log_level));
  // What can be refused without reading a weight is refused before anything listens.
  auto opened = std::make_shared<app::OpenedModel>(app::open_model(options.model, load_options(options), log));
  const auto load = [&, opened] {
    app::LoadedModel model = app::load_model(std::move(*opened), terminal.progress(), log);
    log(LogLevel::info, start_line(model.facts));
    return model;
  };
  server::ApiServer server(server_options(options), load, log);
  log(LogLevel::info, fmt::format("listening at http://{}:{}", options.host, server.port()));
  const server::Outcome outcome = server.run();
  if (outcome.abandon) {
    leave_trace(options);
    std::fflush(stdout);
    if (options.session != nullptr) options.session->abandon(outcome.exit_code);
    std::_Exit(outcome.exit_code);  // the engine's thread is in the middle of something
  }
  if (outcome.exit_code == 0) log(LogLevel::info, "all requests are answered; good-bye");
  return outcome.exit_code;
}

}  // namespace sluice::cli
