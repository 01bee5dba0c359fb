// A limit for calls into a library that may never come back: another thread calls `late` when the guard is not
// destroyed in time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace sluice::comm {

class Guard {
 public:
  Guard(double seconds, std::function<void()> late)
      : thread_([this, seconds, late = std::move(late)] {
          std::unique_lock lock(mutex_);
          if (!done_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return ended_; })) late();
        }) {}
  ~Guard() {
    {
      const std::scoped_lock lock(mutex_);
      ended_ = true;
    }
    done_.notify_one();
    thread_.join();
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool ended_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace sluice::comm
