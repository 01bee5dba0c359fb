// Processor time, for the metrics. Thread-safe.
#pragma once

#include <ctime>

namespace sluice::server {

// Seconds that a clock of processor time shows: CLOCK_THREAD_CPUTIME_ID, or that of pthread_getcpuclockid.
inline double cpu_seconds_of(clockid_t clock) {
  timespec used{};
  if (clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace sluice::server
