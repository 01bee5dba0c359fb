// Long answers, and long parts of streams, written by a worker and sent by the loop.
//
// Made by Jobs. While one is with the worker, nothing else changes its job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/job.h"
#include "server/workers.h"

namespace sluice::server {

inline constexpr std::size_t kLongAnswer = 2048;  // log-probabilities; written in about a millisecond

// Log-probabilities that a whole answer lists, and that the next part of a stream does.
std::size_t entries_of(const Job& job);
std::size_t entries_of_part(const Job& job, std::size_t choice, const Delta& delta);

// Of a job that Jobs has given away. Counts `open` down when it is answered.
class WholeAnswer : public Errand {
 public:
  WholeAnswer(std::shared_ptr<Job> job, std::int64_t& open) : job_(std::move(job)), open_(open) {}

  void work() noexcept override;
  void done() override;

 private:
  std::shared_ptr<Job> job_;
  std::int64_t& open_;
  http::Response response_;
};

// Of a job that goes on when the part is written, unless its client has gone.
class StreamPart : public Errand {
 public:
  using Done = std::function<void(const std::shared_ptr<Job>&, const StreamPart&)>;
  StreamPart(std::shared_ptr<Job> job, std::size_t choice, Delta&& delta, Done done)
      : job_(std::move(job)), choice_(choice), delta_(std::move(delta)), done_(std::move(done)) {}

  void work() noexcept override;
  void done() override { done_(job_, *this); }

  std::size_t choice() const { return choice_; }
  const std::string& text() const { return text_; }
  const std::string& error() const { return error_; }  // empty when it was written

 private:
  std::shared_ptr<Job> job_;
  std::size_t choice_;
  Delta delta_;
  Done done_;
  std::string text_, error_;
};

}  // namespace sluice::server
