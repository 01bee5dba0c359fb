// How a rank waits without keeping a core from those it waits for: it yields for a while, then sleeps for longer
// and longer. On a machine with a core a rank a small exchange ends before the first sleep; where ranks share
// cores the others get theirs. For one thread.
#pragma once

#include <cstdint>

namespace sluice::comm {

class Patience {
 public:
  explicit Patience(double timeout_seconds);
  // False when the limit has passed.
  bool pause();
  // True about every 50 ms: time to look whether peers still live.
  bool look_around();

 private:
  std::int64_t begun_us_;
  std::int64_t now_us_;
  std::int64_t looked_us_;
  double timeout_us_;
};

}  // namespace sluice::comm
