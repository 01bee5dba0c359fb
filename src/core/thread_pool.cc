#include "core/thread_pool.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/error.h"

namespace sluice {
namespace {

constexpr int kMostThreads = 4096;

// About 20 us of spinning: longer than the gap between two kernels of a layer, shorter than a scheduler tick.
constexpr int kSpins = 2000;

// The processors that the caller may use before it's bound to one: threads that it starts afterwards inherit that one.
cpu_set_t processors_of_caller() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  return allowed;
}

void bind_to_processor(int index, const cpu_set_t& allowed) {
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
  // One word that workers enter a loop through: number of the loop << 16 | kClosed | workers inside. The caller opens
  // it for a loop and closes it when the loop has no work left; a worker that wakes too late finds it closed and is not
  // waited for.
  static constexpr std::uint64_t kClosed = 1u << 15;
  static constexpr std::uint64_t kInside = kClosed - 1;
  std::atomic<std::uint64_t> gate{kClosed};
  std::atomic<int> finished{0};  // workers that have run the body of the current loop
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  FunctionRef<void(int)>* body = nullptr;  // written before the gate is opened
  std::mutex mutex;                        // guards sleeping, and `error`
  std::condition_variable wake;
  std::exception_ptr error;
  std::vector<std::thread> workers;
  cpu_set_t processors;  // to bind workers to

  static std::uint64_t loop_of(std::uint64_t gate_word) { return gate_word >> 16; }

  void run_body(int worker) {
    try {
      (*body)(worker);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
    }
  }

  bool has_work(std::uint64_t seen) const {
    const std::uint64_t g = gate.load(std::memory_order_seq_cst);
    return ((g & kClosed) == 0 && loop_of(g) != seen) || stop.load(std::memory_order_seq_cst);
  }

  void wait_for_work(std::uint64_t seen) {
    for (int i = 0; i < kSpins; ++i) {
      if (has_work(seen)) return;
      _mm_pause();
    }
    std::unique_lock<std::mutex> lock(mutex);
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    wake.wait(lock, [&] { return has_work(seen); });
    sleepers.fetch_sub(1, std::memory_order_relaxed);
  }

  // Enters the open loop, if it's not the one seen already; its number, or `seen`.
  std::uint64_t enter(std::uint64_t seen) {
    std::uint64_t g = gate.load(std::memory_order_acquire);
    while ((g & kClosed) == 0 && loop_of(g) != seen) {
      if (gate.compare_exchange_weak(g, g + 1, std::memory_order_acq_rel)) return loop_of(g);
    }
    return seen;
  }

  void work(int worker, const cpu_set_t* pin_to) {
    if (pin_to != nullptr) bind_to_processor(worker, *pin_to);
    std::uint64_t seen = 0;
    while (true) {
      wait_for_work(seen);
      if (stop.load(std::memory_order_acquire)) return;
      const std::uint64_t loop = enter(seen);
      if (loop == seen) continue;
      seen = loop;
      run_body(worker);
      finished.fetch_add(1, std::memory_order_acq_rel);
      gate.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  void wake_all() {
    if (sleepers.load(std::memory_order_seq_cst) == 0) return;
    { const std::lock_guard<std::mutex> lock(mutex); }
    wake.notify_all();
  }

  void open() {
    finished.store(0, std::memory_order_relaxed);
    gate.store((loop_of(gate.load(std::memory_order_relaxed)) + 1) << 16, std::memory_order_seq_cst);
    wake_all();
  }

  void end() {
    stop.store(true, std::memory_order_seq_cst);
    wake_all();
    for (std::thread& worker : workers) worker.join();
  }

  template <class Done>
  void wait_until(Done done) {
    for (int spins = 0; !done(); ++spins) {
      if (spins < kSpins) {
        _mm_pause();
      } else {
        sched_yield();  // more threads than processors: let the others finish
      }
    }
  }

  // With `all`, every worker runs the body once; otherwise only those that come while the caller does.
  void run(FunctionRef<void(int)>& loop_body, bool all, int threads) {
    body = &loop_body;
    open();
    run_body(0);
    if (all) wait_until([&] { return finished.load(std::memory_order_acquire) == threads - 1; });
    gate.fetch_or(kClosed, std::memory_order_acq_rel);
    wait_until([&] { return (gate.load(std::memory_order_acquire) & kInside) == 0; });
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }
};

ThreadPool::ThreadPool(int threads, bool pin) : state_(std::make_unique<State>()), threads_(threads) {
  if (threads < 1 || threads > kMostThreads) {
    fail(ErrorCode::usage, "thread count " + std::to_string(threads), "1 to " + std::to_string(kMostThreads));
  }
  State& s = *state_;
  s.processors = processors_of_caller();
  const cpu_set_t* pin_to = pin ? &s.processors : nullptr;
  if (pin) bind_to_processor(0, s.processors);
  try {
    for (int i = 1; i < threads; ++i) s.workers.emplace_back([&s, i, pin_to] { s.work(i, pin_to); });
  } catch (const std::system_error& e) {
    s.end();
    fail(ErrorCode::resources,
         "thread " + std::to_string(s.workers.size() + 1) + " of " + std::to_string(threads) +
             " could not be started (" + e.code().message() + ")",
         "", "choose fewer with --threads");
  }
}

ThreadPool::~ThreadPool() { state_->end(); }

void ThreadPool::parallel(FunctionRef<void(int)> body) {
  if (threads_ == 1) return body(0);
  state_->run(body, true, threads_);
}

void ThreadPool::parallel_for(std::int64_t count, std::int64_t grain,
                              FunctionRef<void(std::int64_t, std::int64_t, int)> body) {
  if (count <= 0) return;
  if (count <= grain || threads_ == 1) return body(0, count, 0);
  std::atomic<std::int64_t> next{0};
  const auto take_chunks = [&](int worker) {
    while (true) {
      const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      body(begin, begin + grain < count ? begin + grain : count, worker);
    }
  };
  FunctionRef<void(int)> loop_body(take_chunks);
  state_->run(loop_body, false, threads_);
}

int available_processors() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  const int count = CPU_COUNT(&allowed);
  return count > 0 ? count : 1;
}

}  // namespace sluice
