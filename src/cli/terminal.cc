#include "cli/terminal.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace sluice::cli {
namespace {

constexpr int kBarWidth = 30;
constexpr auto kRedraw = std::chrono::milliseconds(50);

std::string human(double value, double unit, const char* const* names, int count) {
  int i = 0;
  while (value >= 999.5 && i + 1 < count) {
    value /= unit;
    ++i;
  }
  const int digits = value >= 99.95 || (i == 0 && value == static_cast<double>(static_cast<std::int64_t>(value))) ? 0
                     : value >= 9.995                                                                             ? 1
                                                                                                                  : 2;
  return fmt::format("{:.{}f} {}", value, digits, names[i]);
}

}  // namespace

std::string human_count(double value) {
  static constexpr const char* kNames[] = {"", "k", "M", "B", "T"};
  std::string text = human(value, 1000, kNames, 5);
  if (text.back() == ' ') text.pop_back();
  return text;
}

std::string human_bytes(double bytes) {
  static constexpr const char* kNames[] = {"B", "kB", "MB", "GB", "TB"};
  return human(bytes, 1000, kNames, 5);
}

Terminal::Terminal(bool quiet)
    : quiet_(quiet), bars_(!quiet && isatty(STDERR_FILENO) != 0 && std::getenv("CI") == nullptr) {}

void Terminal::note(std::string_view line) const {
  if (!quiet_) fmt::print(stderr, "{}\n", line);
}

LogSink Terminal::log() const {
  return [quiet = quiet_](LogLevel level, std::string_view message) {
    if (level == LogLevel::debug || (quiet && level == LogLevel::info)) return;
    const char* prefix = level == LogLevel::warning ? "warning: " : level == LogLevel::error ? "error: " : "";
    fmt::print(stderr, "{}{}\n", prefix, message);
  };
}

ProgressSink Terminal::progress() {
  return [this](const Progress& p) {
    if (bars_) draw(p);
  };
}

void Terminal::draw(const Progress& p) {
  const auto now = std::chrono::steady_clock::now();
  if (p.done == 0) begin_ = now;
  const bool last = p.done >= p.total;
  if (!last && now - last_drawn_ < kRedraw) return;
  last_drawn_ = now;
  if (last) {
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
    return;
  }
  const double share = static_cast<double>(p.done) / static_cast<double>(p.total);
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const int filled = static_cast<int>(share * kBarWidth);
  const bool bytes = p.unit == "bytes";
  const auto amount = [bytes](double v) { return bytes ? human_bytes(v) : human_count(v); };
  std::string rest;
  if (seconds > 0.2 && p.done > 0) {
    rest =
        fmt::format("  {}/s  {:.0f} s left", amount(static_cast<double>(p.done) / seconds), seconds / share - seconds);
  }
  fmt::print(stderr, "\r\033[K{} [{}{}] {} of {}{}{}", p.stage, std::string(filled, '='),
             std::string(kBarWidth - filled, ' '), amount(static_cast<double>(p.done)),
             amount(static_cast<double>(p.total)), bytes ? "" : " " + std::string(p.unit), rest);
  std::fflush(stderr);
}

}  // namespace sluice::cli
