#include "http/client.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice::http {
namespace {

ParserLimits client_limits() {
  ParserLimits limits;
  limits.body_bytes = std::size_t{1} << 30;
  return limits;
}

}  // namespace

Client::Client(Loop& loop, const Url& url, const Address& address, Seconds idle_limit)
    : loop_(loop), url_(url), address_(address), idle_limit_(idle_limit), patience_(loop, [this] {
        finish(fmt::format("no byte came for {} s", idle_limit_.count()));
      }) {}

Client::~Client() { close_socket(); }

void Client::send(std::string_view method, std::string_view path, const Headers& headers, const std::string& body,
                  ClientSink& sink) {
  const bool ipv6 = url_.host.find(':') != std::string::npos;
  message_ = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nContent-Length: {}\r\n", method, url_.path, path,
                         ipv6 ? "[" + url_.host + "]" : url_.host, url_.port, body.size());
  headers.append_to(message_);
  message_ += "\r\n";
  message_ += body;
  sent_ = 0;
  answered_ = reusable_ = false;
  sink_ = &sink;
  patience_.start(idle_limit_);
  if (socket_ < 0) return connect();
  fresh_ = false;
  writable_->enable();
}

void Client::connect() {
  fresh_ = true;
  sent_ = 0;
  parser_ = std::make_unique<Parser>(Parser::Kind::response, client_limits(), static_cast<ParserSink&>(*this));
  socket_ = socket(address_.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_ < 0) {
    loop_.defer([this, why = std::string(std::strerror(errno))] { finish("no socket: " + why); });
    return;
  }
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  readable_ = std::make_unique<Watch>(loop_, Watch::Kind::read, socket_, [this] { on_readable(); });
  writable_ = std::make_unique<Watch>(loop_, Watch::Kind::write, socket_, [this] { on_writable(); });
  const auto* address = reinterpret_cast<const sockaddr*>(address_.bytes.data());
  if (::connect(socket_, address, static_cast<socklen_t>(address_.bytes.size())) < 0 && errno != EINPROGRESS) {
    loop_.defer([this, why = std::string(std::strerror(errno))] { finish(why); });
    return;
  }
  readable_->enable();
  writable_->enable();
}

void Client::on_writable() {
  const ssize_t n = ::send(socket_, message_.data() + sent_, message_.size() - sent_, MSG_NOSIGNAL);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // A server that refuses a request early may have answered already: that answer is read first.
  if (n < 0 && errno != EPIPE && errno != ECONNRESET) return lost(std::strerror(errno));
  sent_ += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  if (n < 0 || sent_ == message_.size()) writable_->disable();
}

void Client::on_readable() {
  std::array<char, 65536> buffer;
  const ssize_t n = recv(socket_, buffer.data(), buffer.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n < 0) return lost(std::strerror(errno));
  if (n == 0) {
    if (sink_ != nullptr && answered_ && parser_->finish()) return;
    return lost("the server has closed the connection");
  }
  if (sink_ == nullptr) return close_socket();  // bytes that nobody asked for
  answered_ = true;
  patience_.start(idle_limit_);
  parser_->feed({buffer.data(), static_cast<std::size_t>(n)});
  if (sink_ != nullptr && parser_->error() != ParseError::none) finish("not a HTTP answer: " + parser_->error_text());
}

bool Client::on_headers() {
  if (parser_->status() >= 200) sink_->on_status(parser_->status(), parser_->headers());
  return true;
}

void Client::on_body(std::string_view part) { sink_->on_part(part); }

void Client::on_complete() {
  if (parser_->status() < 200) return;  // 100 Continue
  reusable_ = parser_->keep_alive();
  loop_.defer([this] { finish(""); });
}

void Client::lost(const std::string& why) {
  close_socket();
  if (sink_ == nullptr) return;
  if (!fresh_ && !answered_) return connect();  // closed between two requests, as servers may
  finish(why);
}

void Client::finish(const std::string& error) {
  patience_.stop();
  if (!error.empty() || !reusable_) close_socket();
  if (ClientSink* sink = std::exchange(sink_, nullptr)) sink->on_done(error);
}

void Client::close_socket() {
  // Their callbacks may be running: the loop takes them away.
  if (readable_) readable_->disable();
  if (writable_) writable_->disable();
  loop_.defer([r = std::shared_ptr<Watch>(std::move(readable_)), w = std::shared_ptr<Watch>(std::move(writable_))] {});
  if (socket_ >= 0) close(std::exchange(socket_, -1));
}

}  // namespace sluice::http
