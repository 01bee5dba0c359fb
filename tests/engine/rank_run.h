// A run over ranks in one process: each rank a thread with a decoder of its own, rank 0 the caller.
//
// The decoders here are whole models, so that what is tested is what travels between ranks; cut models are
// tests/model's and tests/app's affair.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "engine/follow.h"
#include "harness.h"

namespace sluice::engine::testing {

struct RankRunOptions {
  ParallelSizes sizes;
  double timeout_seconds = 60;
  double idle_seconds = 5;
  std::function<void(int rank, EngineOptions&)> change = {};  // faults put in on purpose
};

class RankRun {
 public:
  RankRun(const std::string& folder, const EngineOptions& options, const RankRunOptions& how)
      : sizes_(resolve(how.sizes)), groups_(make_thread_groups(sizes_.tp, how.timeout_seconds)) {
    errors_.resize(static_cast<std::size_t>(sizes_.tp));
    for (int r = 0; r < sizes_.tp; ++r) {
      decoders_.push_back(sluice::testing::load_test_decoder(folder, {.threads = 1}));
    }
    for (int r = 0; r < sizes_.tp; ++r) {  // the list is complete before a thread reads it
      EngineOptions mine = options;
      if (how.change) how.change(r, mine);
      if (r > 0) threads_.emplace_back([this, r, mine, how] { follow_rank(r, mine, how); });
    }
    engine_ = std::make_unique<Engine>(*decoders_.front().decoder, options, ranks(0, how));
  }
  ~RankRun() { stop(); }
  RankRun(const RankRun&) = delete;
  RankRun& operator=(const RankRun&) = delete;

  Engine& engine() { return *engine_; }

  void wait_for_followers() {
    for (std::thread& t : threads_) t.join();
  }

  // Ends rank 0, then waits for all others. What each rank failed with, or "".
  const std::vector<std::string>& stop() {
    engine_.reset();
    groups_.front().reset();
    for (std::thread& t : threads_) {
      if (t.joinable()) t.join();
    }
    return errors_;
  }

 private:
  EngineRanks ranks(int rank, const RankRunOptions& how) const {
    return {groups_[static_cast<std::size_t>(rank)].get(), plan_rank(sizes_, rank), how.idle_seconds};
  }
  void follow_rank(int rank, const EngineOptions& options, const RankRunOptions& how) {
    const auto at = static_cast<std::size_t>(rank);
    try {
      follow(*decoders_[at].decoder, options, ranks(rank, how));
    } catch (const Error& e) {
      errors_[at] = e.what();
    }
    groups_[at].reset();  // the rank is gone
  }

  ParallelSizes sizes_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<sluice::testing::TestDecoder> decoders_;
  std::vector<std::string> errors_;  // [ranks]
  std::vector<std::thread> threads_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace sluice::engine::testing
