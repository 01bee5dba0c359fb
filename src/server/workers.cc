#include "server/workers.h"

#include <pthread.h>

#include <utility>

#include "server/cpu_time.h"

namespace sluice::server {

Workers::Workers(std::function<void()> wake) : wake_(std::move(wake)) {
  for (Queue& queue : queues_) queue.thread = std::thread([this, &queue] { run(queue); });
}

Workers::~Workers() { stop(); }

void Workers::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (Queue& queue : queues_) {
    queue.changed.notify_all();
    if (queue.thread.joinable()) queue.thread.join();
  }
}

void Workers::post(Lane lane, std::unique_ptr<Errand> errand) {
  Queue& queue = queues_[static_cast<std::size_t>(lane)];
  ++open_;
  {
    const std::lock_guard lock(mutex_);
    queue.errands.push_back(std::move(errand));
  }
  queue.changed.notify_one();
}

void Workers::finish() {
  std::vector<std::unique_ptr<Errand>> worked;
  {
    const std::lock_guard lock(mutex_);
    worked.swap(worked_);
  }
  open_ -= std::ssize(worked);
  for (const auto& errand : worked) errand->done();
}

double Workers::cpu_seconds() const {
  double total = 0;
  for (const Queue& queue : queues_) {
    clockid_t clock{};
    if (pthread_getcpuclockid(const_cast<std::thread&>(queue.thread).native_handle(), &clock) != 0) continue;
    total += cpu_seconds_of(clock);
  }
  return total;
}

void Workers::run(Queue& queue) {
  std::unique_lock lock(mutex_);
  while (true) {
    queue.changed.wait(lock, [&] { return stopping_ || !queue.errands.empty(); });
    if (stopping_) return;
    std::unique_ptr<Errand> errand = std::move(queue.errands.front());
    queue.errands.pop_front();
    lock.unlock();
    errand->work();
    lock.lock();
    worked_.push_back(std::move(errand));
    wake_();
  }
}

}  // namespace sluice::server
