// Parts of streams that follow each other within a few milliseconds leave together: one write for each connection in a
// window, not one for each part, since a write costs more than making the part does, and wakes the reader up.
//
// A part leaves at once, with those that wait, when the last time was a window ago or longer: who makes parts slowly
// never waits. For parts behind which none comes there is a timer, one for all connections, which starts with the first
// part that waits and sends all that do: none waits longer than a window. In steady streams it finds none. Owned by
// Server; the loop's thread only. The time and the timer are passed in.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

namespace sluice::http {

class Bundler {
 public:
  using Clock = std::chrono::steady_clock;
  using Now = std::function<Clock::time_point()>;
  using StartTimer = std::function<void(Clock::duration)>;  // then leave() is to be called, once; starts it anew

  // Who has parts to send. Has to be forgotten before it is destroyed.
  class Member {
   public:
    virtual ~Member() = default;
    virtual void send() = 0;  // all that it has; calls sent()

   private:
    friend class Bundler;
    std::optional<Clock::time_point> sent_;
    bool waits_ = false;
  };

  Bundler(Clock::duration window, Now now, StartTimer start_timer);

  // There is something to send. False: now, by the caller; true: send() will be called within a window.
  bool holds(Member& member);
  void sent(Member& member);
  void forget(Member& member);
  void leave();

 private:
  Clock::duration window_;
  Now now_;
  StartTimer start_timer_;
  std::vector<Member*> listed_;  // who has waited since the timer was started
  std::size_t waiting_ = 0;      // who still does
};

}  // namespace sluice::http
