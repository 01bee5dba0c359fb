// Traces against the published form of Chrome's trace events, read back with the JSON reader.
#include "core/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/json.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

// The spans ("ph": "X") of a document; every event has to have what viewers need.
std::vector<Json> spans_of(const Json& document) {
  std::vector<Json> spans;
  for (const Json& event : document.find("traceEvents")->as_array("traceEvents")) {
    EXPECT_TRUE(event.find("name")->is_string());
    EXPECT_TRUE(event.find("pid")->is_int());
    if (event.find("ph")->as_string("ph") == "X") spans.push_back(event);
  }
  return spans;
}

TEST(Trace, EventsAreWrittenInMicrosecondsInTheOrderOfTheirStart) {
  const Trace::Clock::time_point t0 = Trace::Clock::now();
  Trace trace;
  const Trace::Event inner = {"inner", "layer", 7, t0 + 2ms + 5us + 250ns, t0 + 3ms, std::this_thread::get_id()};
  const Trace::Event outer = {"outer", nullptr, 0, t0 + 2ms, t0 + 6ms, std::this_thread::get_id()};
  trace.add(inner);
  trace.add(outer);
  const std::vector<Json> spans = spans_of(Json::parse(trace.json("a \"quoted\\ name", 3), "trace"));
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].find("name")->as_string("name"), "outer");
  EXPECT_EQ(spans[1].find("name")->as_string("name"), "inner");
  EXPECT_EQ(spans[0].find("dur")->as_number("dur"), 4000);
  EXPECT_EQ(spans[1].find("dur")->as_number("dur"), 994.75);
  EXPECT_NEAR(spans[1].find("ts")->as_number("ts") - spans[0].find("ts")->as_number("ts"), 5.25, 1e-6);
  EXPECT_EQ(spans[0].find("args"), nullptr);
  EXPECT_EQ(spans[1].find("args")->find("layer")->as_int("layer"), 7);
  EXPECT_EQ(spans[0].find("pid")->as_int("pid"), 3);
}

TEST(Trace, SpansCloseInTheOrderOfTheirScopes) {
  Trace trace;
  {
    const TraceSpan outer(&trace, "outer");
    const TraceSpan inner(&trace, "inner", "tokens", 5);
  }
  const std::vector<Json> spans = spans_of(Json::parse(trace.json("p", 0), "trace"));
  ASSERT_EQ(spans.size(), 2u);
  const auto number = [&](std::size_t i, const char* key) { return spans[i].find(key)->as_number(key); };
  EXPECT_LE(number(0, "ts"), number(1, "ts"));
  EXPECT_GE(number(0, "ts") + number(0, "dur") + 1e-6, number(1, "ts") + number(1, "dur"));
}

TEST(Trace, NoTraceTakesSpansToo) {
  const TraceSpan span(nullptr, "nothing");
  Trace trace;
  EXPECT_TRUE(spans_of(Json::parse(trace.json("p", 0), "trace")).empty());
}

TEST(Trace, TheLatestEventsAreKeptAndTheOthersCounted) {
  Trace trace(4);
  const Trace::Clock::time_point t0 = Trace::Clock::now();
  for (int i = 0; i < 11; ++i) {
    trace.add({"step", "n", i, t0 + i * 1ms, t0 + (i + 1) * 1ms, std::this_thread::get_id()});
  }
  const Json document = Json::parse(trace.json("p", 0), "trace");
  EXPECT_EQ(document.find("otherData")->find("events_dropped")->as_int("events_dropped"), 7);
  const std::vector<Json> spans = spans_of(document);
  ASSERT_EQ(spans.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(spans[i].find("args")->find("n")->as_int("n"), static_cast<std::int64_t>(7 + i));
  }
}

TEST(Trace, ThreadsHaveRowsOfTheirOwn) {
  constexpr int kThreads = 4;
  constexpr int kSpans = 200;
  Trace trace;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&trace, t] {
      for (int i = 0; i < kSpans; ++i) const TraceSpan span(&trace, "work", "thread", t);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::map<std::int64_t, std::int64_t> thread_of_row;
  std::map<std::int64_t, int> spans_of_row;
  for (const Json& span : spans_of(Json::parse(trace.json("p", 0), "trace"))) {
    const std::int64_t row = span.find("tid")->as_int("tid");
    const std::int64_t thread = span.find("args")->find("thread")->as_int("thread");
    EXPECT_EQ(thread_of_row.emplace(row, thread).first->second, thread);
    ++spans_of_row[row];
  }
  EXPECT_EQ(spans_of_row, (std::map<std::int64_t, int>{{0, kSpans}, {1, kSpans}, {2, kSpans}, {3, kSpans}}));
}

}  // namespace
}  // namespace sluice
