// Which parts of a stream wait for others, over a real connection: one loop, an engine that the test plays, and a
// window that outlasts the test, so that what waits does not come by itself.
#include "server/jobs.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "http/client.h"
#include "text/byte_tokenizer.h"

namespace sluice::server {
namespace {

// A part is the choice's index, what is new, and "." when it ends.
struct PlainReply : Reply {
  void part(std::string& out, const Job& job, std::size_t choice, const Delta& delta) override {
    out += std::to_string(choice) + delta.content + (job.choices[choice].open() ? "" : ".") + " ";
  }
  void tail(std::string& out, const Job&) override { out += "done"; }
  std::string whole(const Job&) override { return "whole"; }
};

struct Starting : http::Handler {
  Jobs& jobs;
  std::int64_t n = 1;  // of the next request
  explicit Starting(Jobs& j) : jobs(j) {}

  std::optional<http::Response> admit(const http::Request&) override { return std::nullopt; }
  void handle(const std::shared_ptr<http::Exchange>& exchange) override {
    Ask ask;
    ask.id = ask.model = "m";
    ask.prompts = {{{1, 2, 3}, ""}};
    ask.n = n;
    ask.stream = exchange->request().path == "/stream";
    if (!ask.stream) return exchange->respond({});
    jobs.start(
        std::move(ask), [](const Job&) { return std::make_unique<PlainReply>(); }, exchange);
  }
  http::Response refusal(int status, const std::string& why) override {
    http::Response r;
    r.status = status;
    r.body = why;
    return r;
  }
  http::Headers more_headers(const http::Request&) const override { return {}; }
};

struct Taking : http::ClientSink {
  std::string body, error;
  int done = 0;
  void on_status(int, const http::Headers&) override {}
  void on_part(std::string_view part) override { body += part; }
  void on_done(const std::string& why) override {
    error = why;
    ++done;
  }
};

struct PartsOfStreams : ::testing::Test {
  static http::ServerLimits patient() {
    http::ServerLimits limits;
    limits.part_window = http::Seconds(100'000);
    return limits;
  }
  http::Loop loop;
  text::Tokenizer tokenizer = text::byte_tokenizer({});
  ThoughtTokens thoughts = ThoughtTokens::of(tokenizer);
  Metrics metrics;
  EngineThread engine{[] { return nullptr; }, [] {}};  // not started
  Workers workers{[] {}};
  Jobs jobs{engine, metrics, workers};
  Starting handler{jobs};
  http::Server server{loop, handler, patient(), "127.0.0.1", 0};
  http::Url url = http::parse_url("http://127.0.0.1:" + std::to_string(server.port()));
  http::Client reader{loop, url, http::resolve(url), http::Seconds(600)};
  http::Client other{loop, url, http::resolve(url), http::Seconds(600)};
  Taking taking;

  void SetUp() override {
    jobs.set_limits({.running = 8});
    jobs.set_text(tokenizer, thoughts);
  }
  void ask(std::int64_t n) {
    handler.n = n;
    reader.send("POST", "/stream", {}, "", taking);
    run_until([&] { return jobs.open_requests() == 1; });
  }
  template <class F>
  void run_until(F holds) {
    http::Timer poll(loop, [&] { loop.stop(); });
    for (int i = 0; i < 100'000 && !holds(); ++i) {
      poll.start(http::Seconds(0.001));
      loop.run();
    }
    ASSERT_TRUE(holds());
  }
  // The engine has made these tokens, a byte each, for this choice; tickets are numbered from 1.
  void tokens(std::size_t choice, const std::string& text, bool last = false) {
    for (const std::int32_t id : tokenizer.encode(text, false, false)) {
      TicketEvent event;
      event.ticket = choice + 1;
      event.event.token = id;
      if (last) event.event.finish = engine::FinishReason::length;
      jobs.on_events({event});
    }
  }
  // What has come once all that has left has arrived: the loop has answered another client meanwhile.
  std::string arrived() {
    Taking settled;
    other.send("GET", "/other", {}, "", settled);
    run_until([&] { return settled.done == 1; });
    return taking.body;
  }
};

TEST_F(PartsOfStreams, TheFirstLeavesAtOnceTheNextWaitAndTheEndTakesThemAlong) {
  ask(1);
  tokens(0, "a");
  EXPECT_EQ(arrived(), "0a ");
  tokens(0, "b");
  tokens(0, "c");
  EXPECT_EQ(arrived(), "0a ");
  EXPECT_EQ(taking.done, 0);
  tokens(0, "d", /*last=*/true);
  EXPECT_EQ(arrived(), "0a 0b 0c 0d. done");
  EXPECT_EQ(taking.done, 1);
  EXPECT_EQ(taking.error, "");
}

TEST_F(PartsOfStreams, TheFirstAndTheLastOfEveryChoiceLeaveAtOnce) {
  ask(2);
  tokens(0, "a");
  EXPECT_EQ(arrived(), "0a ");
  tokens(0, "b");
  EXPECT_EQ(arrived(), "0a ");
  tokens(1, "A");
  EXPECT_EQ(arrived(), "0a 0b 1A ");
  tokens(1, "B");
  EXPECT_EQ(arrived(), "0a 0b 1A ");
  tokens(1, "C", /*last=*/true);
  EXPECT_EQ(arrived(), "0a 0b 1A 1B 1C. ");
  tokens(0, "c");
  EXPECT_EQ(arrived(), "0a 0b 1A 1B 1C. ");
  tokens(0, "d", /*last=*/true);
  EXPECT_EQ(arrived(), "0a 0b 1A 1B 1C. 0c 0d. done");
  EXPECT_EQ(taking.done, 1);
}

TEST_F(PartsOfStreams, AFailureLeavesAtOnceWithWhatWaited) {
  ask(1);
  tokens(0, "a");
  EXPECT_EQ(arrived(), "0a ");
  tokens(0, "b");
  jobs.abort_all(500, "broken");
  EXPECT_TRUE(arrived().starts_with("0a 0b data: {\"error\":")) << taking.body;
  EXPECT_TRUE(taking.body.ends_with("data: [DONE]\n\n")) << taking.body;
  EXPECT_EQ(taking.done, 1);
}

TEST_F(PartsOfStreams, AnAbortByIdEndsAtOnceWithWhatWaited) {
  ask(1);
  tokens(0, "a");
  EXPECT_EQ(arrived(), "0a ");
  tokens(0, "b");
  EXPECT_TRUE(jobs.abort("m"));
  EXPECT_EQ(arrived(), "0a 0b 0. done");
  EXPECT_EQ(taking.done, 1);
}

TEST_F(PartsOfStreams, HalfACharacterIsHeldBackWhateverWaits) {
  ask(1);
  tokens(0, "a");
  tokens(0, "\xC3\xA4");
  EXPECT_EQ(arrived().substr(0, 3), "0a ");
  tokens(0, "b", /*last=*/true);
  EXPECT_EQ(arrived(), "0a 0\xC3\xA4 0b. done");
}

}  // namespace
}  // namespace sluice::server
