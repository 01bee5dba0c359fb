// Rank 0's side of a run over ranks: sends every step to the others, collects what the groups sampled, and keeps idle
// followers informed that it lives.
//
// Owned by Engine. Made by all ranks together (the others call follow). One thread calls it; a thread of its own sends
// word while nobody holds a turn. The destructor tells the others to stop.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/rank_channel.h"

namespace sluice::engine {

class Leader {
 public:
  explicit Leader(const EngineRanks& ranks);
  ~Leader();
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  // The groups of the run are the caller's while it holds a turn: from a message to the end of what it asks for. Throws
  // what went wrong while nobody did.
  std::unique_lock<std::mutex> turn();

  // These need a turn.
  void send(const StepMessage& message) { channel_.send(message); }
  // Results of all groups, in order, checked against what they were asked for; `own` is that of group 0.
  std::vector<StepResult> collect(const StepMessage& asked, StepResult own, std::int64_t vocab);
  // The load of all ranks together.
  ExpertLoad collect_load(ExpertLoad own);
  // After a failure in the middle of a step: the others are lost, nothing more is sent.
  void abandon();

 private:
  void keep_in_touch();

  EngineRanks ranks_;
  RankChannel channel_;
  std::mutex mutex_;  // guards the groups and what follows
  std::condition_variable wake_;
  bool stopping_ = false;
  bool lost_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace sluice::engine
