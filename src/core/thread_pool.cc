#include "core/thread_pool.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"

namespace sluice {
namespace {

// About 20 us of spinning: longer than the gap between two kernels of a layer, shorter than a scheduler tick.
constexpr int kSpins = 2000;

void bind_to_processor(int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || index-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
    return;
  }
}

}  // namespace

struct ThreadPool::State {
  std::atomic<std::uint64_t> epoch{0};  // number of loops started
  std::atomic<int> running{0};          // workers that have not finished the current loop
  std::atomic<bool> stop{false};
  FunctionRef<void(int)>* body = nullptr;  // written before `epoch` is raised
  std::mutex mutex;                        // guards sleeping, and `error`
  std::condition_variable wake;
  std::exception_ptr error;
  std::vector<std::thread> workers;

  void run_body(int worker) {
    try {
      (*body)(worker);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
    }
  }

  // Returns the new epoch.
  std::uint64_t wait_for_work(std::uint64_t seen) {
    for (int i = 0; i < kSpins; ++i) {
      const std::uint64_t now = epoch.load(std::memory_order_acquire);
      if (now != seen) return now;
      _mm_pause();
    }
    std::unique_lock<std::mutex> lock(mutex);
    wake.wait(lock, [&] { return epoch.load(std::memory_order_acquire) != seen; });
    return epoch.load(std::memory_order_acquire);
  }

  void work(int worker, bool pin) {
    if (pin) bind_to_processor(worker);
    std::uint64_t seen = 0;
    while (true) {
      seen = wait_for_work(seen);
      if (stop.load(std::memory_order_acquire)) return;
      run_body(worker);
      running.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  void start_epoch() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      epoch.fetch_add(1, std::memory_order_acq_rel);
    }
    wake.notify_all();
  }
};

ThreadPool::ThreadPool(int threads, bool pin) : state_(std::make_unique<State>()), threads_(threads) {
  if (threads < 1) fail(ErrorCode::usage, "thread count " + std::to_string(threads), "1 or more");
  if (pin) bind_to_processor(0);
  for (int i = 1; i < threads; ++i) state_->workers.emplace_back([this, i, pin] { state_->work(i, pin); });
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_release);
  state_->start_epoch();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::parallel(FunctionRef<void(int)> body) {
  State& s = *state_;
  s.body = &body;
  if (threads_ > 1) {
    s.running.store(threads_ - 1, std::memory_order_relaxed);
    s.start_epoch();
  }
  s.run_body(0);
  for (int spins = 0; s.running.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      _mm_pause();
    } else {
      sched_yield();  // more threads than processors: let the others finish
    }
  }
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

void ThreadPool::parallel_for(std::int64_t count, std::int64_t grain,
                              FunctionRef<void(std::int64_t, std::int64_t, int)> body) {
  if (count <= 0) return;
  if (count <= grain || threads_ == 1) return body(0, count, 0);
  std::atomic<std::int64_t> next{0};
  parallel([&](int worker) {
    while (true) {
      const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      body(begin, begin + grain < count ? begin + grain : count, worker);
    }
  });
}

int available_processors() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  const int count = CPU_COUNT(&allowed);
  return count > 0 ? count : 1;
}

}  // namespace sluice
