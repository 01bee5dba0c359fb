#include "comm/patience.h"

#include <sched.h>
#include <time.h>

#include "comm/board.h"

namespace sluice::comm {
namespace {

constexpr std::int64_t kYieldUs = 1000;
constexpr std::int64_t kShortSleepUs = 20'000;
constexpr std::int64_t kMediumSleepUs = 1'000'000;
constexpr std::int64_t kLookUs = 50'000;

void sleep_us(std::int64_t us) {
  const timespec time = {0, static_cast<long>(us * 1000)};
  nanosleep(&time, nullptr);
}

}  // namespace

Patience::Patience(double timeout_seconds)
    : begun_us_(host_clock_us()), now_us_(begun_us_), looked_us_(begun_us_), timeout_us_(timeout_seconds * 1e6) {}

bool Patience::pause() {
  const std::int64_t waited = now_us_ - begun_us_;
  if (waited < kYieldUs) {
    sched_yield();
  } else {
    sleep_us(waited < kShortSleepUs ? 20 : waited < kMediumSleepUs ? 500 : 2000);
  }
  now_us_ = host_clock_us();
  return static_cast<double>(now_us_ - begun_us_) < timeout_us_;
}

bool Patience::look_around() {
  if (now_us_ - looked_us_ < kLookUs) return false;
  looked_us_ = now_us_;
  return true;
}

}  // namespace sluice::comm
