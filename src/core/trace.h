// A time line of what the process did, as spans of named work: which step, which layer, which part of it.
//
// One object a process, made by the command that was asked for a trace and passed down as a pointer; nullptr = no
// trace, and a span then costs one comparison. Spans may be opened and closed by several threads at once. A span is
// host time: work that a stream has only been given is not in it.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace sluice {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMostEvents = std::size_t{1} << 20;  // 48 bytes each

  // What happened from `start` to `end` on one thread. Names are string literals; `key` may be nullptr.
  struct Event {
    const char* name = nullptr;
    const char* key = nullptr;  // of `value`
    std::int64_t value = 0;
    Clock::time_point start;
    Clock::time_point end;
    std::thread::id thread;
  };

  // Times are written as distances from now. The latest `most_events` are kept.
  explicit Trace(std::size_t most_events = kMostEvents);

  void add(const Event& event);

  // The document that Perfetto, chrome://tracing and speedscope read: the object form of Chrome's Trace Event Format, a
  // complete event ("X", microseconds) a span; threads are numbered in the order of their oldest span. `process` names
  // the row of this process, `rank` its number.
  std::string json(std::string_view process, std::int64_t rank) const;

 private:
  mutable std::mutex mutex_;
  const Clock::time_point origin_ = Clock::now();
  const std::size_t most_events_;
  std::vector<Event> events_;  // a ring once it is full
  std::int64_t added_ = 0;
};

// Adds the time from its construction to its destruction to `trace`, if there is one.
class TraceSpan {
 public:
  explicit TraceSpan(Trace* trace, const char* name, const char* key = nullptr, std::int64_t value = 0)
      : trace_(trace) {
    if (trace_ != nullptr) event_ = {name, key, value, Trace::Clock::now(), {}, std::this_thread::get_id()};
  }
  ~TraceSpan() {
    if (trace_ == nullptr) return;
    event_.end = Trace::Clock::now();
    trace_->add(event_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
  Trace::Event event_;
};

}  // namespace sluice
