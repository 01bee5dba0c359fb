// One connection of an HTTP client: one request at a time, the answer in parts as they arrive.
//
// Used by `eval --base-url` and `bench serve`, one for each request that is open at the same time. Owned by its user,
// who outlives no callback; used by the loop's thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "http/loop.h"
#include "http/message.h"
#include "http/parser.h"
#include "http/url.h"

struct evbuffer;

namespace sluice::http {

// The answer to one request. on_done is the last call; a request may be sent from within it.
class ClientSink {
 public:
  virtual ~ClientSink() = default;
  virtual void on_status(int status, const Headers& headers) = 0;
  virtual void on_part(std::string_view part) = 0;
  virtual void on_done(const std::string& error) = 0;  // "" = the answer is complete
};

class Client : private ParserSink {
 public:
  Client(Loop& loop, const Url& url, const Address& address, Seconds idle_limit);
  ~Client() override;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // `path` is appended to that of the URL. The sink must live until on_done. Not to be called while a request is open.
  void send(std::string_view method, std::string_view path, const Headers& headers, const std::string& body,
            ClientSink& sink);

 private:
  bool on_headers() override;
  void on_body(std::string_view part) override;
  void on_complete() override;

  void connect();
  void on_readable();
  void on_writable();
  void lost(const std::string& why);
  void finish(const std::string& error);
  void close_socket();

  Loop& loop_;
  Url url_;
  Address address_;
  Seconds idle_limit_;
  ClientSink* sink_ = nullptr;
  std::string message_;  // the request, to be sent again when a kept connection turns out to be closed
  std::size_t sent_ = 0;
  bool fresh_ = false;     // this connection has not carried a request before
  bool answered_ = false;  // some byte of the answer has come
  bool reusable_ = false;
  int socket_ = -1;
  std::unique_ptr<Parser> parser_;
  std::unique_ptr<Watch> readable_;
  std::unique_ptr<Watch> writable_;
  Timer patience_;
};

}  // namespace sluice::http
