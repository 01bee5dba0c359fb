#include "cli/terminal.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace sluice::cli {
namespace {

constexpr int kBarWidth = 30;
constexpr auto kRedraw = std::chrono::milliseconds(50);
constexpr std::size_t kMostBytes = 4000;

void write_error(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

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

void say(std::string_view line) { write_error(std::string(line) + "\n"); }

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kMostBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7F ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return text.size() > kMostBytes ? out + "..." : out;
}

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
  if (!quiet_) say(line);
}

LogSink Terminal::log() const {
  return [quiet = quiet_](LogLevel level, std::string_view message) {
    if (level == LogLevel::debug || (quiet && level == LogLevel::info)) return;
    const char* prefix = level == LogLevel::warning ? "warning: " : level == LogLevel::error ? "error: " : "";
    say(prefix + printable(message));
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
    return write_error("\r\033[K");
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
  write_error(fmt::format("\r\033[K{} [{}{}] {} of {}{}{}", p.stage, std::string(filled, '='),
                          std::string(kBarWidth - filled, ' '), amount(static_cast<double>(p.done)),
                          amount(static_cast<double>(p.total)), bytes ? "" : " " + std::string(p.unit), rest));
}

}  // namespace sluice::cli
