// What the commands print about long work, and where. Answers and results go to standard output; everything else to
// standard error, so that output can be piped.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/log.h"

namespace sluice::cli {

// Progress bars on a terminal, nothing elsewhere (and nothing with CI set or --quiet).
class Terminal {
 public:
  explicit Terminal(bool quiet);

  LogSink log() const;                     // warnings and errors always, info unless quiet
  ProgressSink progress();                 // a bar with rate and time left; refers to this object
  void note(std::string_view line) const;  // one line on standard error, unless quiet

 private:
  void draw(const Progress& progress);

  bool quiet_;
  bool bars_;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_drawn_;
};

// Writes `line` and an end of line to standard error. Never throws: when standard error is gone, nobody reads it.
void say(std::string_view line);

// Text that files brought in, for a terminal: control characters as \x1b, so that they can neither move the cursor nor
// fake lines, and cut to a few thousand bytes.
std::string printable(std::string_view text);

// "7.63 M", "15.3 MB": three digits and a unit.
std::string human_count(double value);
std::string human_bytes(double bytes);

}  // namespace sluice::cli
