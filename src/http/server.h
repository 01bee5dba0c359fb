// An HTTP/1.1 server on one loop: listens, reads requests within limits, hands them to a Handler, writes answers.
//
// Own code over libevent's loop and buffers and Node's parser, not evhttp: evhttp 2.1 answers a refused request with a
// page of its own, has a limit for the time between two bytes but none for a whole request, and does not notice that a
// client has gone while an answer is being made. Owned by whoever owns the loop, and used by its thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "http/bundler.h"
#include "http/loop.h"
#include "http/message.h"
#include "http/parser.h"

namespace sluice::http {

struct ServerLimits {
  ParserLimits parser;
  std::int64_t connections = 4096;
  std::size_t arriving_bytes = std::size_t{256} << 20;  // of all bodies that are not complete yet
  std::size_t unsent_bytes = std::size_t{4} << 20;      // of an answer that its reader does not take
  Seconds request_time{30};                             // from the first byte of a request to its last
  Seconds idle_time{75};                                // between two requests, and before the first
  Seconds write_time{30};                               // without any byte of an answer being taken
  Seconds part_window{0.005};                           // in which parts of a stream leave together; 0 = each alone
};

class Connection;

// One request and its answer. Shared by the connection and by whoever makes the answer; once the client has gone,
// writing does nothing.
class Exchange {
 public:
  Exchange(Connection* connection, Request request) : request_(std::move(request)), connection_(connection) {}

  const Request& request() const { return request_; }
  std::string take_body() {
    return std::exchange(request_.body, {});
  }                                                     // so that it need not live as long as the answer
  bool open() const { return connection_ != nullptr; }  // the client is there and the answer is not complete

  // The whole answer.
  void respond(const Response& response);
  // An answer in parts: start, any number of writes, end. Parts written in one round of the loop leave together, at the
  // end of the round; those written `soon`, in one `part_window`, unless something else of the answer leaves earlier.
  void start_stream(const Response& head);
  void write(std::string_view part);
  void write_soon(std::string_view part);
  void end();

  // Called at most once, when the client has gone before the answer was complete. Not called by respond, write or end.
  std::function<void()> on_gone;

 private:
  friend class Connection;
  Request request_;
  Connection* connection_;
  bool streaming_ = false;
  bool chunked_ = false;
};

// What answers. `admit` and `refusal` are called before handle, and instead of it where they answer.
class Handler {
 public:
  virtual ~Handler() = default;
  // After the headers, before the body: an answer for a request that will not be taken.
  virtual std::optional<Response> admit(const Request& request) = 0;
  virtual void handle(const std::shared_ptr<Exchange>& exchange) = 0;
  // The answer for what is no request, or too large, or came too slowly.
  virtual Response refusal(int status, const std::string& why) = 0;
  // Headers that every answer to this request gets, refusals included.
  virtual Headers more_headers(const Request& request) const = 0;
};

class Server {
 public:
  // Listens at once; port 0 = any. Throws Error(resources) when the address cannot be had.
  Server(Loop& loop, Handler& handler, const ServerLimits& limits, const std::string& host, int port);
  ~Server();

  int port() const { return port_; }
  std::int64_t connections() const { return static_cast<std::int64_t>(connections_.size()); }
  std::int64_t arriving() const;  // requests of which a part has come
  // No further connections; idle ones are closed, others after the answer that is being made.
  void drain();
  bool draining() const { return !listener_; }

 private:
  friend class Connection;
  void listen(const std::string& host, int port);
  void accept_some();
  void remove(Connection* connection);

  Loop& loop_;
  Handler& handler_;
  ServerLimits limits_;
  int socket_ = -1;
  int port_ = 0;
  std::size_t arriving_bytes_ = 0;
  std::unique_ptr<Watch> listener_;
  Timer retry_;  // after descriptors ran out
  Timer parts_due_;
  Bundler bundler_;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
};

}  // namespace sluice::http
