// Takes HTTP/1.x messages apart as their bytes arrive. The only file that knows the parser library is parser.cc.
//
// One for each connection, used by its thread. The library is Node's http_parser. Ambiguous framing (two lengths, a
// length beside chunks, blanks in the name of a header, no Host or two) is refused, so that a proxy in front is not led
// to see other requests than we do. Targets of a proxy (http://host/path) are read as their path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "http/message.h"

namespace sluice::http {

struct ParserLimits {
  std::size_t header_bytes = std::size_t{32} << 10;  // request line and headers; at most 64 KiB
  std::size_t header_count = 100;
  std::size_t body_bytes = std::size_t{16} << 20;
};

enum class ParseError : std::uint8_t { none, malformed, headers_too_large, body_too_large, refused };

// What a message is made of, in order: on_headers, on_body for each part, on_complete.
class ParserSink {
 public:
  virtual ~ParserSink() = default;
  // False ends the parsing with ParseError::refused.
  virtual bool on_headers() = 0;
  virtual void on_body(std::string_view part) = 0;
  virtual void on_complete() = 0;
};

class Parser {
 public:
  enum class Kind : std::uint8_t { request, response };
  // `sink` outlives the parser.
  Parser(Kind kind, const ParserLimits& limits, ParserSink& sink);
  ~Parser();

  // Returns how many bytes were taken: all, or those up to the end of a message, after which the next call begins
  // another one. Takes nothing after an error.
  std::size_t feed(std::string_view bytes);
  // The other side has closed: ends a response without a length. False in the middle of a message.
  bool finish();
  // The response on its way answers a HEAD request.
  void expect_no_body();

  ParseError error() const;
  std::string error_text() const;  // of ParseError::malformed
  bool idle() const;               // between messages
  bool has_headers() const;        // of the message that has been begun; false before on_headers

  // Valid from on_headers on.
  Request& request();  // kind request; without the body
  int status() const;  // kind response
  Headers& headers();  // of either
  bool keep_alive() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::http
