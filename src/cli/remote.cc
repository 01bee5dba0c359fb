#include "cli/remote.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "cli/terminal.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

constexpr http::Seconds kPatience{600};
constexpr int kMostFailures = 5;
constexpr double kLeastWait = 0.1;
constexpr double kMostWait = 30;

double seconds_of(const std::string* retry_after) {
  double seconds = 1;
  if (retry_after != nullptr) std::from_chars(retry_after->data(), retry_after->data() + retry_after->size(), seconds);
  return std::clamp(seconds, kLeastWait, kMostWait);
}

class ModelList : public http::ClientSink {
 public:
  explicit ModelList(http::Loop& loop) : loop_(loop) {}
  void on_status(int status, const http::Headers&) override { answer.status = status; }
  void on_part(std::string_view part) override { answer.body += part; }
  void on_done(const std::string& error) override {
    if (!error.empty()) answer = {0, error};
    loop_.stop();
  }
  RemoteCall::Answer answer;

 private:
  http::Loop& loop_;
};

std::string first_model(const Remote& remote, const std::string& base_url) {
  http::Loop loop;
  http::Client client(loop, remote.url, remote.address, http::Seconds(30));
  ModelList list(loop);
  client.send("GET", remote.url.path.ends_with("/v1") ? "/models" : "/v1/models", remote.headers, "", list);
  loop.run();
  if (list.answer.status == 0) {
    fail(ErrorCode::resources, base_url + ": " + list.answer.body, "a server that listens there");
  }
  if (list.answer.status != 200) {
    fail(ErrorCode::resources, fmt::format("{}: {}", base_url, error_text(list.answer)), "a list of models");
  }
  const Json answer = Json::parse(list.answer.body, base_url + "/v1/models");
  const Json* data = answer.find("data");
  if (data == nullptr || !data->is_array() || data->as_array("data").empty()) {
    fail(ErrorCode::bad_input, base_url + " lists no model", "", "name one with --model");
  }
  const Json* id = data->as_array("data").front().find("id");
  if (id == nullptr) fail(ErrorCode::bad_input, base_url + "/v1/models: a model without an id");
  return id->as_string("id");
}

}  // namespace

std::string error_text(const RemoteCall::Answer& answer) {
  if (answer.status == 0) return answer.body;
  std::string text = answer.body.substr(0, 300);
  try {
    const Json body = Json::parse(answer.body, "answer");
    const Json* error = body.find("error");
    const Json* message = error == nullptr ? body.find("message") : error->find("message");
    if (message != nullptr && message->is_string()) text = message->as_string("message");
  } catch (const Error&) {  // not every server answers in JSON: the text itself is told
    return fmt::format("status {}: {}", answer.status, printable(text));
  }
  return fmt::format("status {}: {}", answer.status, printable(text));
}

Remote connect_remote(const Options& options) {
  Remote remote;
  remote.url = http::parse_url(options.base_url);
  if (remote.url.path.ends_with("/v1")) remote.url.path.resize(remote.url.path.size() - 3);
  remote.address = http::resolve(remote.url);
  if (!options.api_key.empty()) remote.headers.add("Authorization", "Bearer " + options.api_key);
  remote.model = options.model.empty() ? first_model(remote, options.base_url) : options.model;
  remote.headers.add("Content-Type", "application/json");
  return remote;
}

RemoteCall::RemoteCall(http::Loop& loop, const Remote& remote, std::string path)
    : remote_(remote),
      path_(std::move(path)),
      client_(loop, remote.url, remote.address, kPatience),
      again_(loop, [this] { send(); }) {}

void RemoteCall::ask(const std::string& body, std::function<void(const Answer&)> done,
                     std::function<void(std::string_view)> piece) {
  request_ = body;
  done_ = std::move(done);
  piece_ = std::move(piece);
  failures_ = 0;
  send();
}

void RemoteCall::send() {
  answer_ = {};
  client_.send("POST", path_, remote_.headers, request_, *this);
}

void RemoteCall::on_status(int status, const http::Headers& headers) {
  answer_.status = status;
  retry_seconds_ = seconds_of(headers.find("retry-after"));
}

void RemoteCall::on_part(std::string_view part) {
  if (piece_ && answer_.status == 200) {
    piece_(part);
  } else {
    answer_.body += part;
  }
}

void RemoteCall::on_done(const std::string& error) {
  const bool busy = answer_.status == 429 || answer_.status == 503;
  const bool unanswered = !error.empty() && answer_.status == 0 && ++failures_ < kMostFailures;
  if (busy || unanswered) {
    ++retries_;
    return again_.start(http::Seconds(busy ? retry_seconds_ : kLeastWait * failures_));
  }
  if (!error.empty()) answer_ = {0, error};
  const auto done = std::move(done_);
  done(answer_);
}

}  // namespace sluice::cli
