// One connection of the server: reads requests, one at a time, and writes answers. Private to server.cc and
// connection.cc; owned by Server, used by the loop's thread.
//
// States: reading (a request, or waiting for one), answering (bytes of a further request are kept, so that the end of
// the connection is noticed), closing (everything is written; what still arrives is thrown away for a moment, since
// closing a socket with unread bytes takes the answer back), dead (will be removed by the loop).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "http/bundler.h"
#include "http/server.h"

struct evbuffer;

namespace sluice::http {

class Connection : public ParserSink, private Bundler::Member {
 public:
  Connection(Server& server, int socket);
  ~Connection() override;

  void respond(Exchange& exchange, const Response& response);
  void start_stream(Exchange& exchange, const Response& head);
  void write(Exchange& exchange, std::string_view part);
  void write_soon(Exchange& exchange, std::string_view part);
  void end(Exchange& exchange);
  bool arriving() const { return state_ == State::reading && request_begun_; }
  // The server drains: closes a connection that is between requests.
  void close_if_idle();

  bool on_headers() override;
  void on_body(std::string_view part) override;
  void on_complete() override;

 private:
  enum class State : std::uint8_t { reading, answering, closing, dead };

  void on_readable();
  void take(std::string_view bytes);
  std::string take_body();
  void on_parse_error();
  void on_deadline();
  void answer_and_close(const Response& response);
  struct Framing {
    bool keep_alive = false, chunked = false, sized = false;
  };
  void send_head(const Request* request, const Response& response, const Framing& framing);
  void add_part(Exchange& exchange, std::string_view part);
  void finish_exchange();
  void schedule_flush();
  void flush();
  void send() override { flush(); }
  void next_request();
  void begin_closing();
  void die();

  Server& server_;
  int socket_;
  Parser parser_;
  evbuffer* out_;
  Watch readable_;
  Watch writable_;
  Timer deadline_;
  State state_ = State::reading;
  bool request_begun_ = false;
  bool fresh_ = true;  // has not carried a request
  bool close_after_ = false;
  bool flush_scheduled_ = false;
  std::size_t largest_part_ = 0;  // of the stream, in bytes
  bool blocked_ = false;          // the socket takes no more; waits for it to be writable
  std::string body_;
  std::string ahead_;  // bytes that came while answering
  std::optional<Response> refused_;
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace sluice::http
