// Messages of the library to its host. The library never prints: it calls the sink it was given, or says nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace sluice {

enum class LogLevel : std::uint8_t { debug, info, warning, error };

// Called from any thread that works for the engine; must be thread-safe itself.
using LogSink = std::function<void(LogLevel level, std::string_view message)>;

// Progress of long work: `done` of `total` units ("bytes", "questions", ...). Called at least at the start and at the
// end.
struct Progress {
  std::string_view stage;
  std::string_view unit;
  std::uint64_t done = 0;
  std::uint64_t total = 0;
};
using ProgressSink = std::function<void(const Progress&)>;

}  // namespace sluice
