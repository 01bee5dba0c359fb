#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <future>
#include <limits>
#include <thread>

#include "comm/group_conformance.h"
#include "core/error.h"

namespace sluice {
namespace {

using test::Check;

// Runs `work` as every rank; the messages of what they threw, "" where nothing was.
std::vector<std::string> as_ranks(int ranks, double timeout, const std::function<void(std::unique_ptr<Group>)>& work) {
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(ranks, timeout);
  std::vector<std::string> errors(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        work(std::move(groups[r]));
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return errors;
}

class Conformance : public testing::TestWithParam<std::tuple<Check, int>> {};

TEST_P(Conformance, Threads) {
  const auto& [check, ranks] = GetParam();
  const auto run = check.run;
  for (const std::string& error : as_ranks(ranks, 60, [run](std::unique_ptr<Group> g) { run(*g); }))
    EXPECT_EQ(error, "");
}

class SingleConformance : public testing::TestWithParam<Check> {};

TEST_P(SingleConformance, Holds) { EXPECT_NO_THROW(GetParam().run(*make_single_group())); }

INSTANTIATE_TEST_SUITE_P(Groups, SingleConformance, testing::ValuesIn(test::conformance_checks()),
                         [](const auto& p) { return std::string(p.param.name); });

INSTANTIATE_TEST_SUITE_P(Groups, Conformance,
                         testing::Combine(testing::ValuesIn(test::conformance_checks()),
                                          testing::Values(1, 2, 3, 4, 5, 8)),
                         [](const auto& p) {
                           return std::string(std::get<0>(p.param).name) + std::to_string(std::get<1>(p.param));
                         });

// Numbers of groups tell the messages of one from those of another, so none is given twice.
TEST(ThreadGroups, SplitsBeyondTheNumbersOfGroupsAreRefusedOnAllRanks) {
  constexpr int kMost = 127;
  const std::vector<std::string> errors = as_ranks(2, 60, [](std::unique_ptr<Group> world) {
    for (int i = 0; i < kMost; ++i) world->split(0)->barrier();
    world->split(0);
  });
  for (const std::string& error : errors)
    EXPECT_EQ(error, "one more split of the ranks; expected at most 127 in a run");
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Something that one rank tells another, which waits for it without a clock.
class Signal {
 public:
  void give() { given_.set_value(); }
  void wait() { future_.wait(); }

 private:
  std::promise<void> given_;
  std::future<void> future_ = given_.get_future();
};

// Gives the signal when a scope ends, also by an exception.
struct GivenAtEnd {
  ~GivenAtEnd() { signal.give(); }
  Signal& signal;
};

// Rank 1 is inside the operation before rank 0's limit begins, and rank 2 stays away until both have ended.
TEST(ThreadGroups, AnAbsentRankIsNamed) {
  std::array<Signal, 2> ended;
  Signal inside, past_barrier;
  const auto errors = as_ranks(3, 3600, [&](std::unique_ptr<Group> g) {
    g->barrier();
    if (g->rank() == 2) {
      past_barrier.give();
      for (Signal& s : ended) s.wait();
      return;
    }
    const GivenAtEnd end{ended[static_cast<std::size_t>(g->rank())]};
    const std::vector<std::int64_t> none(3);
    const RankParts nothing = {none.data(), none.data()};
    if (g->rank() == 0) {
      inside.wait();
      past_barrier.wait();
      g->set_timeout(0.3);
    }
    g->start_all_to_all({nullptr, nothing, nullptr, nothing});
    if (g->rank() == 1) inside.give();
    g->finish_all_to_all();
  });
  EXPECT_TRUE(has(errors[0], "rank 0, all_to_all 2: no end within 0.3 s")) << errors[0];
  EXPECT_TRUE(has(errors[0], "rank 2 is alive; it completed barrier 1")) << errors[0];
  EXPECT_TRUE(has(errors[1], "rank 1, all_to_all 2: a rank is gone")) << errors[1];
  EXPECT_EQ(errors[2], "");
}

TEST(ThreadGroups, ADestroyedRankEndsTheOthersWithoutALimit) {
  const auto errors = as_ranks(3, std::numeric_limits<double>::infinity(), [](std::unique_ptr<Group> g) {
    g->barrier();
    if (g->rank() != 1) g->barrier();
  });
  for (const int r : {0, 2}) {
    EXPECT_TRUE(has(errors[static_cast<std::size_t>(r)], "a rank is gone")) << errors[static_cast<std::size_t>(r)];
    EXPECT_TRUE(has(errors[static_cast<std::size_t>(r)], "has left the run")) << errors[static_cast<std::size_t>(r)];
  }
}

// The last operation of a rank that leaves is complete for all.
TEST(ThreadGroups, LeavingAfterTheLastOperationIsNoFault) {
  for (int i = 0; i < 50; ++i) {
    for (const std::string& error : as_ranks(4, 60, [](std::unique_ptr<Group> g) { g->barrier(); }))
      EXPECT_EQ(error, "");
  }
}

// Calls barrier 2, which rank 1 does not take part in.
void barrier_without_rank_1(Group& g) {
  float x = 1;
  g.barrier();
  if (g.rank() == 1) {
    g.all_reduce_sum(&x, 1);
  } else {
    g.barrier();
  }
}

TEST(ThreadGroups, DifferentOperationsAreNamed) {
  const auto errors = as_ranks(3, 3600, [](std::unique_ptr<Group> g) { barrier_without_rank_1(*g); });
  for (const std::string r : {"0", "2"}) {
    const std::string& error = errors[r == "0" ? 0 : 2];
    EXPECT_TRUE(has(error, "rank " + r + ", barrier 2: ranks call different operations; expected every rank to take"))
        << error;
    EXPECT_TRUE(has(error, "part, but rank 1 entered all_reduce 2 ")) << error;
  }
  EXPECT_TRUE(has(errors[1], "rank 1, all_reduce 2: ranks call different operations")) << errors[1];
  EXPECT_TRUE(has(errors[1], " entered barrier 2 ")) << errors[1];
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// One after the other: those who look when others have noticed and left say the same.
TEST(ThreadGroups, DifferentOperationsAreNamedByThoseWhoLookLater) {
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(3, 3600);
  const std::vector<std::int64_t> none(3);
  const RankParts nothing = {none.data(), none.data()};
  for (const std::size_t r : {0, 1}) groups[r]->start_all_to_all({nullptr, nothing, nullptr, nothing});
  const std::string first = message_of([&] { groups[2]->barrier(); });
  EXPECT_TRUE(has(first, "rank 2, barrier 1: ranks call different operations")) << first;
  EXPECT_TRUE(has(first, "but rank 0 entered all_to_all 1 ")) << first;
  groups[2] = nullptr;
  for (const std::size_t r : {0, 1}) {
    const std::string error = message_of([&] { groups[r]->finish_all_to_all(); });
    EXPECT_TRUE(has(error, "rank " + std::to_string(r) + ", all_to_all 1: ranks call different operations")) << error;
    EXPECT_TRUE(has(error, "but rank 2 entered barrier 1 ")) << error;
    groups[r] = nullptr;
  }
}

TEST(ThreadGroups, AFailedGroupStaysFailed) {
  as_ranks(2, 0.2, [](std::unique_ptr<Group> g) {
    if (g->rank() == 1) return;
    EXPECT_THROW(g->barrier(), Error);
    try {
      g->barrier();
      ADD_FAILURE() << "a failed group did something";
    } catch (const Error& e) {
      EXPECT_TRUE(has(e.what(), "can't be used any more")) << e.what();
      EXPECT_EQ(e.code(), ErrorCode::resources);
    }
  });
}

TEST(ThreadGroups, SizesThatDisagreeAreNamed) {
  const auto errors = as_ranks(2, 60, [](std::unique_ptr<Group> g) {
    const std::vector<std::int64_t> offsets = {0, 8}, counts = {4, g->rank() == 0 ? 8 : 4};
    std::vector<std::byte> buffer(16);
    g->all_gather(buffer.data() + offsets[static_cast<std::size_t>(g->rank())], buffer.data(),
                  {offsets.data(), counts.data()});
  });
  EXPECT_TRUE(has(errors[0], "rank 0, all_gather 1: rank 1 sent 4 bytes; expected 8 bytes")) << errors[0];
}

}  // namespace
}  // namespace sluice
