// Own threads for data-parallel loops, created once and passed to whoever computes.
//
// `parallel` is called from one thread at a time; the calling thread works too, as worker 0. An exception thrown by a
// body is rethrown to the caller after all workers have stopped. Workers spin for a few microseconds between loops,
// then sleep.
#pragma once

#include <cstdint>
#include <memory>

#include "core/function_ref.h"

namespace sluice {

class ThreadPool {
 public:
  // `threads`, 1 to 4096, counts the caller. With pin, worker i is bound to the i-th processor that this process may
  // use.
  explicit ThreadPool(int threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return threads_; }

  // Runs body(worker) once on every worker, 0 <= worker < size(), and returns when all are done.
  void parallel(FunctionRef<void(int worker)> body);

  // Runs body(begin, end, worker) over [0, count) in chunks of `grain`, handed out dynamically: which worker gets a
  // chunk is not fixed, so a body must not let its result depend on it. Waits only for workers that took a chunk: one
  // that the system has not woken yet, on a busy machine for milliseconds, delays nobody.
  void parallel_for(std::int64_t count, std::int64_t grain,
                    FunctionRef<void(std::int64_t begin, std::int64_t end, int worker)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
  int threads_;
};

// Processors that this process may run on (affinity mask, container limits), at least 1.
int available_processors();

}  // namespace sluice
