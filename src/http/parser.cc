#include "http/parser.h"

#include <http_parser.h>
#include <strings.h>

#include <algorithm>
#include <limits>

namespace sluice::http {
namespace {

bool starts_with(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() && strncasecmp(text.data(), lower.data(), lower.size()) == 0;
}

// "http://host:1/a?b" > "/a?b"; other targets stay as they are.
std::string_view without_authority(std::string_view target) {
  if (!starts_with(target, "http://") && !starts_with(target, "https://")) return target;
  target.remove_prefix(target.find("//") + 2);
  target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
  return target;
}

std::int64_t count(const Headers& headers, std::string_view name) {
  return std::count_if(headers.list().begin(), headers.list().end(), [&](const auto& header) {
    return header.first.size() == name.size() && starts_with(header.first, name);
  });
}

}  // namespace

struct Parser::Impl {
  http_parser parser = {};
  ParserLimits limits;
  ParserSink* sink = nullptr;
  ParseError error = ParseError::none;
  Request request;
  std::string target;
  bool value_last = false;  // the last part was of a header's value
  bool idle = true;
  bool headers_done = false;
  const char* complaint = nullptr;  // in place of the library's
  bool complete = false;
  bool no_body = false;
  bool keep_alive = true;
  std::size_t header_bytes = 0;
  std::size_t body_bytes = 0;

  static Impl& of(http_parser* p) { return *static_cast<Impl*>(p->data); }

  int refuse(ParseError why) {
    error = why;
    return -1;
  }

  int malformed(const char* why) {
    complaint = why;
    return refuse(ParseError::malformed);
  }

  int add_header_bytes(std::size_t n) {
    header_bytes += n;
    if (header_bytes > limits.header_bytes) return refuse(ParseError::headers_too_large);
    return 0;
  }

  static int on_begin(http_parser* p) {
    Impl& self = of(p);
    self.request = {};
    self.target.clear();
    self.value_last = self.complete = self.headers_done = false;
    self.idle = false;
    self.header_bytes = self.body_bytes = 0;
    return 0;
  }

  static int on_url(http_parser* p, const char* at, std::size_t n) {
    of(p).target.append(at, n);
    return of(p).add_header_bytes(n);
  }

  static int on_field(http_parser* p, const char* at, std::size_t n) {
    Impl& self = of(p);
    // The library, as Debian builds it, lets blanks pass.
    if (std::string_view(at, n).find_first_of(" \t") != std::string_view::npos) {
      return self.malformed("blanks in the name of a header");
    }
    auto& list = self.request.headers.list();
    if (list.empty() || self.value_last) list.emplace_back();
    self.value_last = false;
    list.back().first.append(at, n);
    if (list.size() > self.limits.header_count) return self.refuse(ParseError::headers_too_large);
    return self.add_header_bytes(n);
  }

  static int on_value(http_parser* p, const char* at, std::size_t n) {
    Impl& self = of(p);
    self.value_last = true;
    self.request.headers.list().back().second.append(at, n);
    return self.add_header_bytes(n);
  }

  static int on_headers_done(http_parser* p) {
    Impl& self = of(p);
    p->upgrade = 0;  // no other protocol is spoken: the request is answered as it is
    if (p->http_major != 1 || p->http_minor > 1) return self.malformed("only versions 1.0 and 1.1 are spoken");
    Request& r = self.request;
    const std::string_view target = without_authority(self.target);
    const std::size_t mark = target.find('?');
    r.path = target.empty() || mark == 0 ? "/" : target.substr(0, mark);
    if (mark != std::string_view::npos) r.query = target.substr(mark + 1);
    if (p->type == HTTP_REQUEST) r.method = http_method_str(static_cast<http_method>(p->method));
    r.minor_version = p->http_minor;
    r.keep_alive = self.keep_alive = http_should_keep_alive(p) != 0;
    self.headers_done = true;
    if (p->type == HTTP_REQUEST && p->http_minor == 1 && count(r.headers, "host") != 1) {
      return self.malformed("HTTP/1.1 asks for one header Host");
    }
    const bool has_length = p->content_length != std::numeric_limits<std::uint64_t>::max();
    if (has_length && p->content_length > self.limits.body_bytes) return self.refuse(ParseError::body_too_large);
    if (!self.sink->on_headers()) return self.refuse(ParseError::refused);
    return self.no_body ? 1 : 0;
  }

  static int on_part(http_parser* p, const char* at, std::size_t n) {
    Impl& self = of(p);
    self.body_bytes += n;
    if (self.body_bytes > self.limits.body_bytes) return self.refuse(ParseError::body_too_large);
    self.sink->on_body({at, n});
    return 0;
  }

  static int on_done(http_parser* p) {
    Impl& self = of(p);
    self.idle = self.complete = true;
    http_parser_pause(p, 1);
    return 0;
  }

  static const http_parser_settings& settings() {
    static const http_parser_settings kSettings = [] {
      http_parser_settings s;
      http_parser_settings_init(&s);
      s.on_message_begin = on_begin;
      s.on_url = on_url;
      s.on_header_field = on_field;
      s.on_header_value = on_value;
      s.on_headers_complete = on_headers_done;
      s.on_body = on_part;
      s.on_message_complete = on_done;
      return s;
    }();
    return kSettings;
  }
};

Parser::Parser(Kind kind, const ParserLimits& limits, ParserSink& sink) : impl_(std::make_unique<Impl>()) {
  http_parser_init(&impl_->parser, kind == Kind::request ? HTTP_REQUEST : HTTP_RESPONSE);
  impl_->parser.data = impl_.get();
  impl_->limits = limits;
  impl_->sink = &sink;
}

Parser::~Parser() = default;

std::size_t Parser::feed(std::string_view bytes) {
  Impl& p = *impl_;
  if (p.error != ParseError::none || bytes.empty()) return 0;
  if (HTTP_PARSER_ERRNO(&p.parser) == HPE_PAUSED) http_parser_pause(&p.parser, 0);
  const std::size_t taken = http_parser_execute(&p.parser, &Impl::settings(), bytes.data(), bytes.size());
  const http_errno result = HTTP_PARSER_ERRNO(&p.parser);
  if (result == HPE_HEADER_OVERFLOW) p.error = ParseError::headers_too_large;
  if (result != HPE_OK && result != HPE_PAUSED && p.error == ParseError::none) p.error = ParseError::malformed;
  if (p.complete && p.error == ParseError::none) {
    p.complete = false;
    p.sink->on_complete();
  }
  return taken;
}

bool Parser::finish() {
  Impl& p = *impl_;
  if (p.error != ParseError::none) return false;
  if (p.idle) return true;
  http_parser_execute(&p.parser, &Impl::settings(), nullptr, 0);
  if (!p.complete) return false;
  p.complete = false;
  p.sink->on_complete();
  return true;
}

void Parser::expect_no_body() { impl_->no_body = true; }
ParseError Parser::error() const { return impl_->error; }

std::string Parser::error_text() const {
  if (impl_->complaint != nullptr) return impl_->complaint;
  return http_errno_description(HTTP_PARSER_ERRNO(&impl_->parser));
}

bool Parser::idle() const { return impl_->idle; }
bool Parser::has_headers() const { return !impl_->idle && impl_->headers_done; }
Request& Parser::request() { return impl_->request; }
int Parser::status() const { return static_cast<int>(impl_->parser.status_code); }
Headers& Parser::headers() { return impl_->request.headers; }
bool Parser::keep_alive() const { return impl_->keep_alive; }

}  // namespace sluice::http
