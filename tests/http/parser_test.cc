#include "http/parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::http {
namespace {

// Writes down what a parser reports.
struct Log : ParserSink {
  Parser* parser = nullptr;
  std::vector<std::string> heads, bodies;
  std::string body;
  bool accept = true;

  bool on_headers() override {
    const Request& r = parser->request();
    heads.push_back(r.method + " " + r.path + " " + r.query);
    return accept;
  }
  void on_body(std::string_view part) override { body += part; }
  void on_complete() override {
    bodies.push_back(body);
    body.clear();
  }
};

struct Reading {
  Log log;
  Parser parser;
  explicit Reading(Parser::Kind kind = Parser::Kind::request, const ParserLimits& limits = {})
      : parser(kind, limits, log) {
    log.parser = &parser;
  }
  // Feeds all of it, `step` bytes at a time.
  void feed(std::string_view bytes, std::size_t step) {
    while (!bytes.empty() && parser.error() == ParseError::none) {
      bytes.remove_prefix(parser.feed(bytes.substr(0, step)));
    }
  }
};

constexpr std::string_view kTwo =
    "POST /a?x=1&y HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
    "POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: "
    "t\r\n\r\n"
    "GET /c HTTP/1.0\r\nX-Empty:\r\n\r\n";

TEST(Parser, HoweverTheBytesAreCut) {
  for (std::size_t step = 1; step <= kTwo.size(); ++step) {
    Reading r;
    r.feed(kTwo, step);
    ASSERT_EQ(r.parser.error(), ParseError::none) << step;
    EXPECT_EQ(r.log.heads, (std::vector<std::string>{"POST /a x=1&y", "POST /b ", "GET /c "})) << step;
    EXPECT_EQ(r.log.bodies, (std::vector<std::string>{"hello", "abcde", ""})) << step;
    EXPECT_FALSE(r.parser.keep_alive());
    EXPECT_TRUE(r.parser.idle());
  }
}

TEST(Parser, StopsAtTheEndOfAMessage) {
  Reading r;
  const std::size_t first = kTwo.find("POST /b");
  EXPECT_EQ(r.parser.feed(kTwo), first);
  EXPECT_EQ(r.log.bodies.size(), 1u);
  EXPECT_EQ(*r.parser.headers().find("CONTENT-length"), "5");
  EXPECT_EQ(r.parser.headers().find("Content"), nullptr);
}

TEST(Parser, LimitsHoldWhateverIsSaid) {
  ParserLimits limits;
  limits.header_bytes = 100;
  limits.header_count = 5;
  limits.body_bytes = 10;
  const auto error = [&](const std::string& bytes) {
    Reading r(Parser::Kind::request, limits);
    r.feed(bytes, 7);
    return r.parser.error();
  };
  EXPECT_EQ(error("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0123456789"), ParseError::none);
  EXPECT_EQ(error("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n"), ParseError::body_too_large);
  EXPECT_EQ(error("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n5\r\nabcde\r\n"),
            ParseError::body_too_large);
  EXPECT_EQ(error("GET /" + std::string(200, 'a') + " HTTP/1.1\r\n\r\n"), ParseError::headers_too_large);
  EXPECT_EQ(error("GET / HTTP/1.1\r\nA: " + std::string(200, 'a')), ParseError::headers_too_large);
  EXPECT_EQ(error("GET / HTTP/1.1\r\nA:b\r\nA:b\r\nA:b\r\nA:b\r\nA:b\r\nA:b\r\n\r\n"), ParseError::headers_too_large);
}

TEST(Parser, TwoLengthsAreNone) {
  for (const char* head :
       {"Content-Length: 1\r\nContent-Length: 2", "Content-Length: 1\r\nTransfer-Encoding: chunked",
        "Content-Length: 1x", "Content-Length: -1", "Transfer-Encoding : chunked", "Content-Length : 1"}) {
    Reading r;
    r.feed(std::string("POST / HTTP/1.1\r\nHost: h\r\n") + head + "\r\n\r\nx", 1000);
    EXPECT_EQ(r.parser.error(), ParseError::malformed) << head;
  }
}

TEST(Parser, ARefusalEndsIt) {
  Reading r;
  r.log.accept = false;
  r.feed(kTwo, 1000);
  EXPECT_EQ(r.parser.error(), ParseError::refused);
  EXPECT_TRUE(r.log.bodies.empty());
  EXPECT_EQ(r.parser.feed("GET / HTTP/1.1\r\n\r\n"), 0u);
}

TEST(Parser, AnAnswerWithoutALengthEndsWithItsConnection) {
  Reading r(Parser::Kind::response);
  r.feed("HTTP/1.1 200 OK\r\nX: y\r\n\r\nsome text", 4);
  EXPECT_EQ(r.parser.status(), 200);
  EXPECT_TRUE(r.log.bodies.empty());
  EXPECT_TRUE(r.parser.finish());
  EXPECT_EQ(r.log.bodies, std::vector<std::string>{"some text"});
  Reading cut(Parser::Kind::response);
  cut.feed("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsome", 100);
  EXPECT_FALSE(cut.parser.finish());
}

TEST(Parser, AnotherProtocolIsNotSpoken) {
  Reading r;
  r.feed("GET /x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nGET /y HTTP/1.1\r\nHost: h\r\n\r\n",
         1000);
  EXPECT_EQ(r.log.heads, (std::vector<std::string>{"GET /x ", "GET /y "}));
}

TEST(Parser, OneHostAndNoMore) {
  const auto read = [](const std::string& head) {
    Reading r;
    r.feed(head + "\r\n\r\n", 1000);
    return r.parser.error() == ParseError::none ? r.log.heads.front() : r.parser.error_text();
  };
  EXPECT_EQ(read("GET /x HTTP/1.1\r\nHOST: h"), "GET /x ");
  EXPECT_EQ(read("GET /x HTTP/1.1\r\nHost:"), "GET /x ");  // empty, as RFC 9112 has it for a target without one
  EXPECT_EQ(read("GET /x HTTP/1.0\r\nA: b"), "GET /x ");
  EXPECT_NE(read("GET /x HTTP/1.1\r\nA: b").find("Host"), std::string::npos);
  EXPECT_NE(read("GET /x HTTP/1.1\r\nHost: a\r\nHost: a").find("Host"), std::string::npos);
}

TEST(Parser, TargetsOfAProxyAreReadAsTheirPath) {
  const auto head = [](const std::string& target) {
    Reading r;
    r.feed("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n", 1000);
    return r.parser.error() == ParseError::none ? r.log.heads.front() : "none";
  };
  EXPECT_EQ(head("http://host/a?b=c"), "GET /a b=c");
  EXPECT_EQ(head("HTTPS://[::1]:80/a//b"), "GET /a//b ");
  EXPECT_EQ(head("http://host"), "GET / ");
  EXPECT_EQ(head("http://host?b"), "GET / b");
  EXPECT_EQ(head("/a/http://b"), "GET /a/http://b ");
}

TEST(Parser, HeadersOfAMessageBelongToIt) {
  Reading r;
  EXPECT_FALSE(r.parser.has_headers());
  r.feed("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nx", 1000);
  EXPECT_TRUE(r.parser.has_headers());
  r.feed("yGET ", 1);
  EXPECT_FALSE(r.parser.has_headers());
}

}  // namespace
}  // namespace sluice::http
