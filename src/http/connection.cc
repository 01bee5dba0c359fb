#include "http/connection.h"

#include <event2/buffer.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace sluice::http {
namespace {

constexpr std::size_t kMostAhead = std::size_t{64} << 10;  // of further requests while one is being answered
constexpr Seconds kLinger{5};
constexpr Seconds kLastChance{0.3};

}  // namespace

void Exchange::respond(const Response& response) {
  if (connection_ != nullptr) connection_->respond(*this, response);
}
void Exchange::start_stream(const Response& head) {
  if (connection_ != nullptr) connection_->start_stream(*this, head);
}
void Exchange::write(std::string_view part) {
  if (connection_ != nullptr) connection_->write(*this, part);
}
void Exchange::write_soon(std::string_view part) {
  if (connection_ != nullptr) connection_->write_soon(*this, part);
}
void Exchange::end() {
  if (connection_ != nullptr) connection_->end(*this);
}

Connection::Connection(Server& server, int socket)
    : server_(server),
      socket_(socket),
      parser_(Parser::Kind::request, server.limits_.parser, *this),
      out_(evbuffer_new()),
      readable_(server.loop_, Watch::Kind::read, socket, [this] { on_readable(); }),
      writable_(server.loop_, Watch::Kind::write, socket, [this] { flush(); }),
      deadline_(server.loop_, [this] { on_deadline(); }) {
  readable_.enable();
  deadline_.start(server.limits_.idle_time);
}

Connection::~Connection() {
  server_.bundler_.forget(*this);
  if (exchange_) exchange_->connection_ = nullptr;
  take_body();
  evbuffer_free(out_);
  readable_.disable();
  writable_.disable();
  close(socket_);
}

void Connection::on_readable() {
  std::array<char, 16384> buffer;
  const ssize_t n = recv(socket_, buffer.data(), buffer.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return die();
  if (state_ == State::closing) return;
  take({buffer.data(), static_cast<std::size_t>(n)});
}

void Connection::take(std::string_view bytes) {
  if (state_ == State::reading) {
    if (!request_begun_) deadline_.start(server_.limits_.request_time);
    request_begun_ = true;
    bytes.remove_prefix(parser_.feed(bytes));
    if (parser_.error() != ParseError::none) return on_parse_error();
    if (!body_.empty() && server_.arriving_bytes_ > server_.limits_.arriving_bytes) {
      return answer_and_close(
          server_.handler_.refusal(503, fmt::format("bodies of {} bytes are arriving; at most {} do",
                                                    server_.arriving_bytes_, server_.limits_.arriving_bytes)));
    }
  }
  if (bytes.empty() || state_ == State::closing || state_ == State::dead) return;
  ahead_.append(bytes);
  if (ahead_.size() > kMostAhead) readable_.disable();
}

bool Connection::on_headers() {
  const Request& request = parser_.request();
  refused_ = server_.handler_.admit(request);
  if (refused_) return false;
  const std::string* expect = request.headers.find("expect");
  if (expect != nullptr && *expect == "100-continue" && request.minor_version >= 1) {
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    evbuffer_add(out_, kContinue.data(), kContinue.size());
    schedule_flush();
  }
  return true;
}

void Connection::on_body(std::string_view part) {
  body_.append(part);
  server_.arriving_bytes_ += part.size();
}

std::string Connection::take_body() {
  server_.arriving_bytes_ -= body_.size();
  return std::exchange(body_, {});
}

void Connection::on_complete() {
  state_ = State::answering;
  request_begun_ = fresh_ = false;
  deadline_.stop();
  Request request = std::move(parser_.request());
  request.body = take_body();
  close_after_ = !request.keep_alive || server_.draining();
  exchange_ = std::make_shared<Exchange>(this, std::move(request));
  server_.handler_.handle(exchange_);
}

void Connection::on_parse_error() {
  const auto& limits = server_.limits_.parser;
  switch (parser_.error()) {
    case ParseError::refused:
      return answer_and_close(*refused_);
    case ParseError::headers_too_large:
      return answer_and_close(server_.handler_.refusal(
          431,
          fmt::format("the headers have more than {} bytes or {} fields", limits.header_bytes, limits.header_count)));
    case ParseError::body_too_large:
      return answer_and_close(
          server_.handler_.refusal(413, fmt::format("the body has more than {} bytes", limits.body_bytes)));
    default:
      return answer_and_close(server_.handler_.refusal(400, "not a HTTP request: " + parser_.error_text()));
  }
}

void Connection::on_deadline() {
  if (arriving()) {
    return answer_and_close(server_.handler_.refusal(
        408, fmt::format("the request did not arrive within {} s", server_.limits_.request_time.count())));
  }
  die();  // idle for too long, or an answer that nobody reads
}

void Connection::answer_and_close(const Response& response) {
  close_after_ = true;
  take_body();
  const Request* request = parser_.has_headers() ? &parser_.request() : nullptr;
  send_head(request, response, {.sized = true});
  if (request == nullptr || request->method != "HEAD") {
    evbuffer_add(out_, response.body.data(), response.body.size());
  }
  begin_closing();
}

// `request` is nullptr when what came is none.
void Connection::send_head(const Request* request, const Response& response, const Framing& framing) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  if (!response.content_type.empty()) head += "Content-Type: " + response.content_type + "\r\n";
  response.headers.append_to(head);
  if (request != nullptr) server_.handler_.more_headers(*request).append_to(head);
  if (framing.chunked) head += "Transfer-Encoding: chunked\r\n";
  if (framing.sized && response.status != 204) head += fmt::format("Content-Length: {}\r\n", response.body.size());
  head += framing.keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  evbuffer_add(out_, head.data(), head.size());
}

void Connection::respond(Exchange& exchange, const Response& response) {
  close_after_ = close_after_ || server_.draining();
  send_head(&exchange.request(), response, {.keep_alive = !close_after_, .sized = true});
  if (exchange.request().method != "HEAD") evbuffer_add(out_, response.body.data(), response.body.size());
  finish_exchange();
}

void Connection::start_stream(Exchange& exchange, const Response& head) {
  exchange.streaming_ = true;
  exchange.chunked_ = exchange.request().minor_version >= 1;
  close_after_ = close_after_ || server_.draining() || !exchange.chunked_;
  send_head(&exchange.request(), head, {.keep_alive = !close_after_, .chunked = exchange.chunked_});
  schedule_flush();
}

void Connection::write(Exchange& exchange, std::string_view part) {
  if (part.empty() || !exchange.streaming_) return;
  add_part(exchange, part);
  schedule_flush();
}

void Connection::write_soon(Exchange& exchange, std::string_view part) {
  if (part.empty() || !exchange.streaming_) return;
  add_part(exchange, part);
  if (!flush_scheduled_ && !server_.bundler_.holds(*this)) schedule_flush();
}

void Connection::add_part(Exchange& exchange, std::string_view part) {
  largest_part_ = std::max(largest_part_, part.size());
  if (exchange.chunked_) {
    std::array<char, 24> length;
    char* const end = fmt::format_to(length.data(), "{:x}\r\n", part.size());
    evbuffer_add(out_, length.data(), static_cast<std::size_t>(end - length.data()));
  }
  evbuffer_add(out_, part.data(), part.size());
  if (exchange.chunked_) evbuffer_add(out_, "\r\n", 2);
}

void Connection::end(Exchange& exchange) {
  if (exchange.chunked_) evbuffer_add(out_, "0\r\n\r\n", 5);
  finish_exchange();
}

// The answer is complete; the exchange is over for whoever made it.
void Connection::finish_exchange() {
  exchange_->connection_ = nullptr;
  exchange_->on_gone = nullptr;
  largest_part_ = 0;
  schedule_flush();
  server_.loop_.defer([exchange = std::exchange(exchange_, nullptr)] {});  // its maker may be the caller
}

void Connection::schedule_flush() {
  if (state_ == State::dead || std::exchange(flush_scheduled_, true)) return;
  server_.loop_.defer([this] {
    flush_scheduled_ = false;
    flush();
  });
}

void Connection::flush() {
  if (state_ == State::dead) return;
  server_.bundler_.sent(*this);
  const int written = evbuffer_get_length(out_) > 0 ? evbuffer_write(out_, socket_) : 0;
  if (written < 0 && errno != EAGAIN && errno != EINTR) return die();
  const std::size_t left = evbuffer_get_length(out_);
  // A reader that does not read. The largest part is left out: no reader takes it at once.
  if (exchange_ && left > server_.limits_.unsent_bytes + largest_part_) return die();
  if (left > 0) {
    if (written > 0 || !blocked_) deadline_.start(server_.limits_.write_time);
    if (!std::exchange(blocked_, true)) writable_.enable();
    return;
  }
  if (std::exchange(blocked_, false)) writable_.disable();
  if (exchange_) return deadline_.stop();
  if (state_ == State::closing) {
    shutdown(socket_, SHUT_WR);
    return deadline_.start(kLinger);
  }
  if (state_ != State::answering) return;
  const bool last = close_after_ || (server_.draining() && ahead_.empty());  // a stream may have begun before the drain
  last ? begin_closing() : next_request();
}

// Goes on with what came while the last request was answered.
void Connection::next_request() {
  state_ = State::reading;
  deadline_.start(server_.limits_.idle_time);
  readable_.enable();
  if (!ahead_.empty()) take(std::exchange(ahead_, {}));
}

void Connection::begin_closing() {
  state_ = State::closing;
  readable_.enable();
  schedule_flush();
}

void Connection::close_if_idle() {
  if (state_ != State::reading || request_begun_) return;
  if (!fresh_) return die();
  deadline_.start(kLastChance);  // its first request may be on the way
}

void Connection::die() {
  if (std::exchange(state_, State::dead) == State::dead) return;
  readable_.disable();
  writable_.disable();
  deadline_.stop();
  server_.loop_.defer([this] {
    if (const auto exchange = std::exchange(exchange_, nullptr)) {
      exchange->connection_ = nullptr;
      if (const auto gone = std::exchange(exchange->on_gone, nullptr)) gone();
    }
    server_.remove(this);
  });
}

}  // namespace sluice::http
