// A model behind an OpenAI-compatible server, as `eval --base-url` and `bench serve` talk to it.
//
// Made once; the calls belong to one loop and its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cli/options.h"
#include "core/json.h"
#include "http/client.h"

namespace sluice::cli {

struct Remote {
  http::Url url;
  http::Address address;
  http::Headers headers;  // content type and key
  std::string model;      // asked for with --model, else the first that the server lists
};

// Asks the server for its models. Throws Error(usage) for a bad URL, Error(resources) when nobody answers there.
Remote connect_remote(const Options& options);

// One connection on which completions are asked for, one after the other. A busy server (429, 503) is asked again after
// the time that it names.
class RemoteCall : private http::ClientSink {
 public:
  struct Answer {
    int status = 0;    // 0 = no answer
    std::string body;  // or what kept it from coming
  };
  RemoteCall(http::Loop& loop, const Remote& remote, std::string path);

  // `done` is called once, and may ask anew. `piece`, if given, gets the parts of a body with status 200 as they come,
  // and Answer::body stays empty.
  void ask(const std::string& body, std::function<void(const Answer&)> done,
           std::function<void(std::string_view)> piece = nullptr);
  std::int64_t retries() const { return retries_; }

 private:
  void on_status(int status, const http::Headers& headers) override;
  void on_part(std::string_view part) override;
  void on_done(const std::string& error) override;
  void send();

  const Remote& remote_;
  std::string path_;
  http::Client client_;
  http::Timer again_;
  std::string request_;
  std::function<void(const Answer&)> done_;
  std::function<void(std::string_view)> piece_;
  Answer answer_;
  double retry_seconds_ = 0;
  std::int64_t retries_ = 0;
  int failures_ = 0;  // of this request in a row, without any answer
};

// What an error body of OpenAI's form says, else the beginning of the body.
std::string error_text(const RemoteCall::Answer& answer);

}  // namespace sluice::cli
