#include "core/trace.h"

#include <algorithm>
#include <cstdio>

namespace sluice {
namespace {

// Nanoseconds as microseconds with three decimals: exact, and the same in every locale.
std::string microseconds(std::int64_t ns) {
  char text[40];
  std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(ns / 1000), static_cast<long long>(ns % 1000));
  return text;
}

std::int64_t nanoseconds(Trace::Clock::duration d) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

// An event that names the row of a process or a thread.
std::string naming(const char* what, const std::string& row, const std::string& name) {
  return R"({"name":")" + std::string(what) + R"(","ph":"M",)" + row + R"(,"args":{"name":")" + escaped(name) + "\"}}";
}

}  // namespace

Trace::Trace(std::size_t most_events) : most_events_(std::max<std::size_t>(most_events, 1)) {}

void Trace::add(const Event& event) {
  const std::scoped_lock lock(mutex_);
  const auto at = static_cast<std::size_t>(added_++) % most_events_;
  if (events_.size() < most_events_) {
    events_.push_back(event);
  } else {
    events_[at] = event;
  }
}

std::string Trace::json(std::string_view process, std::int64_t rank) const {
  const std::scoped_lock lock(mutex_);
  std::vector<const Event*> ordered;
  for (const Event& event : events_) ordered.push_back(&event);
  std::stable_sort(ordered.begin(), ordered.end(), [](const Event* a, const Event* b) { return a->start < b->start; });

  const std::string pid = "\"pid\":" + std::to_string(rank);
  std::string text = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"events_dropped\":" +
                     std::to_string(added_ - static_cast<std::int64_t>(events_.size())) + "},\"traceEvents\":[\n" +
                     naming("process_name", pid, std::string(process));
  std::vector<std::thread::id> threads;
  for (const Event* event : ordered) {
    auto thread = std::find(threads.begin(), threads.end(), event->thread);
    const std::string row = pid + ",\"tid\":" + std::to_string(thread - threads.begin());
    if (thread == threads.end()) {
      text += ",\n" + naming("thread_name", row, "thread " + std::to_string(threads.size()));
      threads.push_back(event->thread);
    }
    text += ",\n{\"name\":\"" + escaped(event->name) + "\",\"ph\":\"X\"," + row +
            ",\"ts\":" + microseconds(nanoseconds(event->start - origin_)) +
            ",\"dur\":" + microseconds(nanoseconds(event->end - event->start));
    if (event->key != nullptr) {
      text += ",\"args\":{\"" + escaped(event->key) + "\":" + std::to_string(event->value) + "}";
    }
    text += "}";
  }
  return text + "\n]}\n";
}

}  // namespace sluice
