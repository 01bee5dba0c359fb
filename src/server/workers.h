// Threads for what would hold up the loop: bodies that are parsed and cut into tokens, long answers that are written.
//
// Two lanes, each a thread and a queue in the order of posting: a long errand never makes a short one wait. Owned by
// the server. Everything but Errand::work runs on the loop's thread; whoever posts bounds what is posted.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::server {

class Errand {
 public:
  virtual ~Errand() = default;
  virtual void work() noexcept = 0;  // on a worker's thread; nobody else looks at the errand meanwhile
  virtual void done() = 0;           // on the loop's thread, then the errand is destroyed there
};

class Workers {
 public:
  enum class Lane : std::uint8_t { brief, lengthy };

  // `wake` is called from a worker's thread when an errand is to be taken back by finish().
  explicit Workers(std::function<void()> wake);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void stop();  // waits for the errands that are being worked on, drops the others

  void post(Lane lane, std::unique_ptr<Errand> errand);
  void finish();                                 // calls done() of what has been worked on
  std::int64_t posted() const { return open_; }  // and not finished
  double cpu_seconds() const;                    // processor time of the threads so far; before stop()

 private:
  struct Queue {
    std::condition_variable changed;
    std::deque<std::unique_ptr<Errand>> errands;
    std::thread thread;
  };
  void run(Queue& queue);

  std::function<void()> wake_;
  std::int64_t open_ = 0;  // of the loop's thread
  std::mutex mutex_;       // guards what follows, but for the threads
  bool stopping_ = false;
  std::vector<std::unique_ptr<Errand>> worked_;
  std::array<Queue, 2> queues_;
};

}  // namespace sluice::server
