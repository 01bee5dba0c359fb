// The rule of when parts leave, with a clock and a timer of the test.
#include "http/bundler.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace sluice::http {
namespace {

using std::chrono::milliseconds;

struct World {
  Bundler::Clock::time_point now{};
  std::optional<Bundler::Clock::time_point> timer;  // when it runs
  int timers = 0;                                   // that were started
  Bundler bundler{milliseconds(4), [this] { return now; },
                  [this](Bundler::Clock::duration after) {
                    timer = now + after;
                    ++timers;
                  }};

  // Time goes on; a timer that is reached runs.
  void advance(milliseconds by) {
    const auto end = now + by;
    while (timer && *timer <= end) {
      now = *timer;
      timer.reset();
      bundler.leave();
    }
    now = end;
  }
  std::int64_t ms() const { return std::chrono::duration_cast<milliseconds>(now.time_since_epoch()).count(); }
};

// A stream that notes when its parts were made and when they left.
struct Stream : Bundler::Member {
  World& world;
  std::vector<std::int64_t> made, left;  // ms, of each part
  std::vector<std::int64_t> writes;      // ms, of each time that something left
  explicit Stream(World& w) : world(w) {}
  void part() {
    made.push_back(world.ms());
    if (!world.bundler.holds(*this)) send();
  }
  void send() override {
    left.resize(made.size(), world.ms());
    writes.push_back(world.ms());
    world.bundler.sent(*this);
  }
};

using Times = std::vector<std::int64_t>;

TEST(Bundler, PartsThatAreAWindowApartLeaveAtOnce) {
  World w;
  Stream s(w);
  for (int i = 0; i < 10; ++i) {
    s.part();
    w.advance(milliseconds(4));
  }
  EXPECT_EQ(s.made, (Times{0, 4, 8, 12, 16, 20, 24, 28, 32, 36}));
  EXPECT_EQ(s.left, s.made);
  EXPECT_EQ(w.timers, 0);
}

TEST(Bundler, PartsThatFollowEachOtherLeaveTogetherOnceAWindow) {
  World w;
  Stream s(w);
  for (int i = 0; i < 10; ++i) {
    s.part();
    w.advance(milliseconds(1));
  }
  w.advance(milliseconds(10));
  EXPECT_EQ(s.made, (Times{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(s.left, (Times{0, 4, 4, 4, 4, 8, 8, 8, 8, 13}));  // the last one by the timer
  EXPECT_EQ(s.writes, (Times{0, 4, 8, 13}));
}

TEST(Bundler, TheLastPartBeforeAPauseLeavesWithoutAnotherOne) {
  World w;
  Stream s(w);
  s.part();
  w.advance(milliseconds(3));
  s.part();
  w.advance(milliseconds(1000));
  EXPECT_EQ(s.left, (Times{0, 7}));  // not longer than a window after it was made
  s.part();                          // after the pause, at once
  EXPECT_EQ(s.left, (Times{0, 7, 1003}));
}

TEST(Bundler, StreamsShareATimerAndNoneWaitsLongerThanAWindow) {
  World w;
  std::vector<Stream> streams(32, Stream(w));
  for (int i = 0; i < 100; ++i) {
    for (std::size_t s = 0; s < streams.size(); ++s) {
      if ((static_cast<std::size_t>(i) + s) % (1 + s % 3) == 0) streams[s].part();  // every 1, 2 or 3 ms
    }
    w.advance(milliseconds(1));
  }
  w.advance(milliseconds(4));
  EXPECT_LE(w.timers, 26);
  for (const Stream& s : streams) {
    ASSERT_EQ(s.left.size(), s.made.size());
    EXPECT_LE(s.writes.size(), 27u);
    for (std::size_t i = 0; i < s.made.size(); ++i) EXPECT_LE(s.left[i] - s.made[i], 4);
  }
}

TEST(Bundler, ALateTimerDoesNotHoldAPartThatIsDue) {
  World w;
  Stream s(w);
  s.part();
  w.now += milliseconds(1);
  s.part();
  w.now += milliseconds(5);  // the timer has not run
  s.part();
  EXPECT_EQ(s.left, (Times{0, 6, 6}));
  w.advance(milliseconds(0));  // now it does, and finds nothing to do
  EXPECT_EQ(s.writes, (Times{0, 6}));
}

TEST(Bundler, WhatLeftForAnotherReasonIsNotSentAgain) {
  World w;
  Stream s(w);
  s.part();
  w.advance(milliseconds(1));
  s.part();
  w.advance(milliseconds(1));
  s.send();  // the end of the answer, say
  w.advance(milliseconds(1));
  s.part();  // has its own time
  w.advance(milliseconds(9));
  EXPECT_EQ(s.writes, (Times{0, 2, 7}));
}

TEST(Bundler, WhoIsForgottenIsNotSent) {
  World w;
  Stream stays(w), goes(w);
  for (Stream* s : {&goes, &stays}) {
    s->part();
    s->part();
  }
  w.bundler.forget(goes);
  w.advance(milliseconds(4));
  EXPECT_EQ(goes.writes, (Times{0}));
  EXPECT_EQ(stays.writes, (Times{0, 4}));
  stays.part();  // the timer starts again, though somebody who waited never left
  w.advance(milliseconds(4));
  EXPECT_EQ(stays.writes, (Times{0, 4, 8}));
}

TEST(Bundler, WithoutAWindowEveryPartLeavesAtOnce) {
  World w;
  Bundler none(
      milliseconds(0), [&] { return w.now; }, [](Bundler::Clock::duration) { FAIL(); });
  Stream s(w);
  none.sent(s);
  EXPECT_FALSE(none.holds(s));
}

}  // namespace
}  // namespace sluice::http
