// Client and server of this layer against each other, on one loop.
#include "http/server.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "http/client.h"

namespace sluice::http {
namespace {

// Answers by path; /later keeps the exchange for the test.
struct Answering : Handler {
  std::shared_ptr<Exchange> kept;
  int gone = 0;
  bool refuse = false;

  std::optional<Response> admit(const Request& request) override {
    if (request.path != "/refused") return std::nullopt;
    Response r;
    r.status = 401;
    return r;
  }
  void handle(const std::shared_ptr<Exchange>& exchange) override {
    if (exchange->request().path == "/later") {
      kept = exchange;
      kept->on_gone = [this] { ++gone; };
      return;
    }
    Response r;
    r.body = exchange->request().method + exchange->request().body;
    exchange->respond(r);
  }
  Response refusal(int status, const std::string& why) override {
    Response r;
    r.status = status;
    r.body = why;
    return r;
  }
  Headers more_headers(const Request& request) const override { return {{"X-Path", request.path}}; }
};

struct Taking : ClientSink {
  Loop& loop;
  int status = 0;
  std::string body, error, path;
  int done = 0;
  int parts = 0;
  explicit Taking(Loop& l) : loop(l) {}
  void on_status(int s, const Headers& headers) override {
    status = s;
    const std::string* found = headers.find("x-path");
    path = found == nullptr ? "" : *found;
  }
  void on_part(std::string_view part) override {
    body += part;
    ++parts;
  }
  void on_done(const std::string& why) override {
    error = why;
    ++done;
    loop.stop();
  }
};

struct World : ::testing::Test {
  Loop loop;
  Answering handler;
  std::unique_ptr<Server> server = std::make_unique<Server>(loop, handler, ServerLimits{}, "127.0.0.1", 0);
  Url url = parse_url("http://127.0.0.1:" + std::to_string(server->port()));
  Client client{loop, url, resolve(url), Seconds(600)};

  Taking ask(std::string_view method, std::string_view path, const std::string& body = "") {
    Taking taking(loop);
    client.send(method, path, {}, body, taking);
    loop.run();
    return taking;
  }
  // Runs the loop until something holds.
  template <class F>
  void run_until(F holds) {
    Timer poll(loop, [&] { loop.stop(); });
    for (int i = 0; i < 300'000 && !holds(); ++i) {
      poll.start(Seconds(0.001));
      loop.run();
    }
    ASSERT_TRUE(holds());
  }
};

TEST_F(World, OneConnectionCarriesManyRequests) {
  for (int i = 0; i < 5; ++i) {
    const Taking t = ask("POST", "/x", std::to_string(i));
    EXPECT_EQ(t.status, 200);
    EXPECT_EQ(t.body, "POST" + std::to_string(i));
    EXPECT_EQ(t.done, 1);
  }
  EXPECT_EQ(server->connections(), 1);
  const std::string large(3 << 20, 'x');
  EXPECT_EQ(ask("POST", "/x", large).body.size(), large.size() + 4);
}

TEST_F(World, ARefusalComesBeforeTheBodyAndClosesTheConnection) {
  const Taking refused = ask("POST", "/refused", std::string(8 << 20, 'x'));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.path, "/refused");    // what belongs to every answer belongs to refusals too
  const Taking again = ask("GET", "/x");  // on a new connection
  EXPECT_EQ(again.body + again.path, "GET/x");
  EXPECT_EQ(ask("POST", "/x", std::string(20 << 20, 'x')).status, 413);
}

TEST_F(World, AStreamArrivesInParts) {
  Taking taking(loop);
  client.send("GET", "/later", {}, "", taking);
  run_until([&] { return handler.kept != nullptr; });
  handler.kept->start_stream({});
  handler.kept->write("one");
  run_until([&] { return taking.body == "one"; });
  handler.kept->write("two");
  handler.kept->write("three");
  handler.kept->end();
  EXPECT_FALSE(handler.kept->open());
  handler.kept->write("nothing");
  run_until([&] { return taking.done == 1; });
  EXPECT_EQ(taking.body, "onetwothree");
  EXPECT_EQ(taking.error, "");
  EXPECT_EQ(handler.gone, 0);
}

TEST_F(World, AClientThatLeavesIsNoticedAtOnce) {
  {
    Client leaving(loop, url, resolve(url), Seconds(600));
    Taking taking(loop);
    leaving.send("GET", "/later", {}, "", taking);
    run_until([&] { return handler.kept != nullptr; });
    EXPECT_TRUE(handler.kept->open());
  }
  run_until([&] { return handler.gone == 1; });
  EXPECT_FALSE(handler.kept->open());
  handler.kept->respond({});  // to nobody
  run_until([&] { return server->connections() == 0; });
  EXPECT_EQ(handler.gone, 1);
}

TEST_F(World, DrainingFinishesWhatWasBegun) {
  Taking taking(loop);
  client.send("GET", "/later", {}, "", taking);
  run_until([&] { return handler.kept != nullptr; });
  server->drain();
  Client late(loop, url, resolve(url), Seconds(600));
  Taking refused(loop);
  late.send("GET", "/x", {}, "", refused);
  run_until([&] { return refused.done == 1; });
  EXPECT_NE(refused.error, "");
  Response r;
  r.body = "done";
  handler.kept->respond(r);
  run_until([&] { return taking.done == 1; });
  EXPECT_EQ(taking.body, "done");
  run_until([&] { return server->connections() == 0; });
}

// A server with limits of its own, and a client whose stream has begun.
struct Limited : World {
  explicit Limited(const ServerLimits& limits) : own_server(loop, handler, limits, "127.0.0.1", 0) {}
  Server own_server;
  Url there = parse_url("http://127.0.0.1:" + std::to_string(own_server.port()));
  Client reader{loop, there, resolve(there), Seconds(600)};
  Taking taking{loop};

  void begin() {
    reader.send("GET", "/later", {}, "", taking);
    run_until([&] { return handler.kept != nullptr; });
    handler.kept->start_stream({});
  }
};

// Little patience for what is not read.
struct Streaming : Limited {
  Streaming() : Limited({.unsent_bytes = 1 << 20}) {}
};

TEST_F(Streaming, AReaderThatDoesNotReadIsLeft) {
  begin();
  // More than any socket buffer takes, in one round of the loop, so that nobody can have read it.
  const std::string part(2 << 20, 'x');
  for (int i = 0; i < 32; ++i) handler.kept->write(part);
  run_until([&] { return handler.gone == 1; });
}

TEST_F(Streaming, AReaderGetsAPartOfAnySize) {
  begin();
  handler.kept->write(std::string(64 << 20, 'x'));
  run_until([&] { return !taking.body.empty(); });  // it has begun to leave, and most of it has not
  handler.kept->write("end");
  handler.kept->end();
  run_until([&] { return taking.done == 1; });
  EXPECT_EQ(handler.gone, 0);
  EXPECT_EQ(taking.error, "");
  EXPECT_EQ(taking.body.size(), (64u << 20) + 3);
}

// Parts may wait longer than any test lasts.
struct Bundling : Limited {
  Bundling() : Limited({.part_window = Seconds(100'000)}) {}

  void begin() {
    Limited::begin();
    handler.kept->write_soon("first");
    run_until([&] { return taking.body == "first"; });
    handler.kept->write_soon("|second");
  }
  // What has left by now has arrived: the loop has read and written for another client meanwhile.
  void settle() { EXPECT_EQ(ask("GET", "/x").body, "GET"); }
};

TEST_F(Bundling, APartThatFollowsWaitsAndLeavesWithTheNextThatDoesNot) {
  begin();
  settle();
  EXPECT_EQ(taking.body, "first");
  handler.kept->write("|third");
  run_until([&] { return taking.body == "first|second|third"; });
  handler.kept->write_soon("|fourth");
  settle();
  EXPECT_EQ(taking.body, "first|second|third");
}

TEST_F(Bundling, TheEndTakesEverythingAlong) {
  begin();
  handler.kept->end();
  run_until([&] { return taking.done == 1; });
  EXPECT_EQ(taking.body, "first|second");
  EXPECT_EQ(taking.error, "");
  Taking next(loop);
  reader.send("GET", "/x", {}, "", next);  // on the same connection, whose last answer left just now
  run_until([&] { return next.done == 1; });
  EXPECT_EQ(next.body, "GET");
  EXPECT_EQ(own_server.connections(), 1);
}

TEST_F(World, AClientThatLeavesWhileItsPartWaitsIsForgotten) {
  ServerLimits limits;
  limits.part_window = Seconds(0.05);  // in which it has left on most machines; what is to hold always holds
  Server brief(loop, handler, limits, "127.0.0.1", 0);
  const Url there = parse_url("http://127.0.0.1:" + std::to_string(brief.port()));
  const auto begin = [&](Client& reader, Taking& taking) {
    handler.kept.reset();
    reader.send("GET", "/later", {}, "", taking);
    run_until([&] { return handler.kept != nullptr; });
    handler.kept->start_stream({});
    handler.kept->write("first");
    run_until([&] { return taking.body == "first"; });
  };
  Client stays(loop, there, resolve(there), Seconds(600));
  Taking staying(loop);
  begin(stays, staying);
  const auto stream = handler.kept;
  {
    Client leaves(loop, there, resolve(there), Seconds(600));
    Taking leaving(loop);
    begin(leaves, leaving);
    handler.kept->write_soon("|second");  // starts the timer
  }
  stream->write_soon("|second");
  run_until([&] { return handler.gone == 1 && brief.connections() == 1; });
  run_until([&] { return staying.body == "first|second"; });  // the timer has run
}

TEST_F(Bundling, DrainingEndsAStreamOfWhichAPartWaits) {
  begin();
  own_server.drain();
  handler.kept->end();
  run_until([&] { return taking.done == 1 && own_server.connections() == 0; });
  EXPECT_EQ(taking.body, "first|second");
}

TEST_F(World, APartThatWaitsLeavesByItself) {
  Taking taking(loop);
  client.send("GET", "/later", {}, "", taking);
  run_until([&] { return handler.kept != nullptr; });
  handler.kept->start_stream({});
  std::string all;
  for (int i = 0; i < 20; ++i) {  // whatever the moment, each arrives without another one behind it
    for (const char* part : {"a", "b", "c"}) {
      handler.kept->write_soon(part);
      loop.defer([&] { loop.stop(); });
      loop.run();
    }
    all += "abc";
    run_until([&] { return taking.body == all; });
  }
}

TEST_F(World, APortThatIsTakenIsTold) {
  try {
    const Server second(loop, handler, {}, "127.0.0.1", server->port());
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::resources);
  }
}

TEST_F(World, WhatACallbackThrowsEndsTheLoop) {
  Timer timer(loop, [] { fail(ErrorCode::check_failed, "thrown"); });
  timer.start(Seconds(0));
  EXPECT_THROW(loop.run(), Error);
}

}  // namespace
}  // namespace sluice::http
