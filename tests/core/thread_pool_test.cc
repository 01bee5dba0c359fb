#include "core/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/error.h"

namespace sluice {
namespace {

TEST(ThreadPool, EveryWorkerRunsOnceALoop) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    std::vector<std::atomic<int>> runs(threads);
    for (int loop = 0; loop < 300; ++loop) pool.parallel([&](int worker) { ++runs[worker]; });
    for (const auto& count : runs) EXPECT_EQ(count.load(), 300);
  }
}

TEST(ThreadPool, ChunksCoverTheRangeExactlyOnce) {
  ThreadPool pool(3);
  for (const std::int64_t count : {0, 1, 7, 64, 1000}) {
    for (const std::int64_t grain : {1, 3, 64}) {
      std::vector<std::atomic<int>> seen(count);
      pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) ++seen[i];
      });
      for (const auto& times : seen) EXPECT_EQ(times.load(), 1);
    }
  }
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  ThreadPool pool(2);
  for (int loop = 0; loop < 50; ++loop) {
    EXPECT_THROW(pool.parallel([](int worker) {
      if (worker == 1) throw std::runtime_error("worker");
    }),
                 std::runtime_error);
    std::atomic<int> runs{0};
    pool.parallel([&](int) { ++runs; });
    EXPECT_EQ(runs.load(), 2);
  }
}

TEST(ThreadPool, SleepingWorkersWakeUp) {
  ThreadPool pool(2);
  for (int loop = 0; loop < 20; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than the spin
    std::atomic<int> runs{0};
    pool.parallel([&](int) { ++runs; });
    EXPECT_EQ(runs.load(), 2);
  }
}

TEST(ThreadPool, WorkersSeeWhatTheCallerWrote) {
  ThreadPool pool(2);
  std::vector<int> in(1000), out(1000);
  for (int loop = 0; loop < 200; ++loop) {
    for (int i = 0; i < 1000; ++i) in[i] = loop + i;
    pool.parallel_for(1000, 10, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = 2 * in[i];
    });
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(out[i], 2 * (loop + i));
  }
}

// Workers that come late for a short loop must neither run its body after it has returned nor miss the next loop.
TEST(ThreadPool, LateWorkersFindTheirWayThroughMixedLoops) {
  ThreadPool pool(5);
  for (int loop = 0; loop < 2000; ++loop) {
    std::vector<std::atomic<int>> chunks(3);
    std::atomic<bool> running{true};
    pool.parallel_for(3, 1, [&](std::int64_t begin, std::int64_t end, int) {
      EXPECT_TRUE(running.load());
      for (std::int64_t i = begin; i < end; ++i) ++chunks[i];
    });
    running = false;
    for (const auto& times : chunks) ASSERT_EQ(times.load(), 1);
    if (loop % 7 != 0) continue;
    std::vector<std::atomic<int>> runs(5);
    pool.parallel([&](int worker) { ++runs[worker]; });
    for (const auto& times : runs) ASSERT_EQ(times.load(), 1);
  }
}

TEST(ThreadPool, AnExceptionInAChunkReachesTheCaller) {
  ThreadPool pool(3);
  for (int loop = 0; loop < 50; ++loop) {
    const auto body = [](std::int64_t begin, std::int64_t, int) {
      if (begin == 4) throw std::runtime_error("chunk");
    };
    EXPECT_THROW(pool.parallel_for(9, 1, body), std::runtime_error);
  }
}

// The caller is bound too, which its workers must not inherit.
TEST(ThreadPool, PinnedWorkersHaveProcessorsOfTheirOwn) {
  const int processors = available_processors();
  std::vector<int> bound(static_cast<std::size_t>(processors), -1);
  std::thread([&] {  // keeps the binding away from the other tests
    ThreadPool pool(processors, true);
    pool.parallel([&](int worker) {
      cpu_set_t allowed;
      CPU_ZERO(&allowed);
      sched_getaffinity(0, sizeof(allowed), &allowed);
      for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&allowed) == 1; ++cpu) {
        if (CPU_ISSET(cpu, &allowed)) bound[static_cast<std::size_t>(worker)] = cpu;
      }
    });
  })
      .join();
  EXPECT_EQ(std::count(bound.begin(), bound.end(), -1), 0);
  std::sort(bound.begin(), bound.end());
  EXPECT_EQ(std::adjacent_find(bound.begin(), bound.end()), bound.end());
}

TEST(ThreadPool, TheNumberOfThreadsHasLimits) {
  EXPECT_THROW(ThreadPool(0), Error);
  EXPECT_THROW(ThreadPool(5000), Error);
  EXPECT_GE(available_processors(), 1);
}

}  // namespace
}  // namespace sluice
