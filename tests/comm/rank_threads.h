// Ranks as threads of one process, for tests of what runs on every rank of a group.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/group.h"

namespace sluice::testing {

// Calls body(r, group of rank r) on a thread for each rank; a rank that throws counts as gone at once, others when all
// have ended. Then throws what the lowest rank threw.
inline void on_rank_threads(std::vector<std::unique_ptr<Group>> groups,
                            const std::function<void(std::size_t r, std::unique_ptr<Group>& group)>& body) {
  std::vector<std::exception_ptr> errors(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r, groups[r]);
      } catch (...) {
        errors[r] = std::current_exception();
        groups[r].reset();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& e : errors) {
    if (e) std::rethrow_exception(e);
  }
}

}  // namespace sluice::testing
