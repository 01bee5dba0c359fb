// The event loop of one thread: descriptors, timers, signals, work for later, and a wake-up from other threads.
//
// Made and run by one thread (a command, the server); everything here belongs to that thread but Wakeup::notify. Event
// objects are owned by whoever waits for them and must not outlive the Loop. A callback must not destroy its own event
// object: it hands that to Loop::defer.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

struct event;
struct event_base;

namespace sluice::http {

using Callback = std::function<void()>;
using Seconds = std::chrono::duration<double>;

class Loop {
 public:
  // Ignores SIGPIPE in this process: a closed socket is an error of a write, not the end of the process.
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void run();   // until stop(); throws what a callback threw, which ends the loop
  void stop();  // after the callback that calls it

  // Called after the current round of callbacks.
  void defer(Callback work);

  event_base* base() const { return base_; }
  void call(const Callback& callback);  // for event objects: no exception may pass through the C library

 private:
  void run_deferred();

  event_base* base_;
  event* later_;
  std::exception_ptr thrown_;
  std::vector<Callback> deferred_;
};

struct EventCall {
  Loop* loop;
  Callback call;
};

// Waits for a descriptor or a signal. Inactive until enabled; stays active until disabled.
class Watch {
 public:
  enum class Kind : std::uint8_t { read, write, signal };
  Watch(Loop& loop, Kind kind, int descriptor_or_signal, Callback call);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void enable();
  void disable();

 private:
  EventCall call_;
  event* event_;
};

// Calls once, some time after start. Starting a running timer starts it anew.
class Timer {
 public:
  Timer(Loop& loop, Callback call);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void start(Seconds after);
  void stop();

 private:
  EventCall call_;
  event* event_;
};

// Lets another thread wake the loop. Notifications that come before the loop has reacted are one.
class Wakeup {
 public:
  Wakeup(Loop& loop, Callback call);
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  void notify();  // from any thread

 private:
  void drain();

  int descriptor_;
  Callback call_;
  Watch watch_;
};

}  // namespace sluice::http
