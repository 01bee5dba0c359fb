#include "server/workers.h"

#include <gtest/gtest.h>

#include <ctime>
#include <memory>
#include <mutex>

namespace sluice::server {
namespace {

// Uses a tenth of a second of its thread, however long that takes.
struct Laborious : Errand {
  int& ended;
  explicit Laborious(int& e) : ended(e) {}
  void work() noexcept override {
    const auto used = [] {
      timespec t{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
      return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
    };
    for (const double begin = used(); used() - begin < 0.1;) continue;
  }
  void done() override { ++ended; }
};

TEST(Workers, TheirProcessorTimeIsThatOfBothThreads) {
  std::mutex mutex;
  std::condition_variable changed;
  int wakes = 0, ended = 0;
  Workers workers([&] {
    const std::lock_guard lock(mutex);
    ++wakes;
    changed.notify_one();
  });
  const double before = workers.cpu_seconds();
  workers.post(Workers::Lane::brief, std::make_unique<Laborious>(ended));
  workers.post(Workers::Lane::lengthy, std::make_unique<Laborious>(ended));
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return wakes == 2; });
  }
  workers.finish();
  EXPECT_EQ(ended, 2);
  EXPECT_GE(workers.cpu_seconds() - before, 0.2);
}

}  // namespace
}  // namespace sluice::server
