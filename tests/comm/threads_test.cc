#include <gtest/gtest.h>

#include <chrono>
#include <functional>
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

TEST_P(Conformance, Single) {
  const auto& [check, ranks] = GetParam();
  if (ranks != 1) return;
  EXPECT_NO_THROW(check.run(*make_single_group()));
}

INSTANTIATE_TEST_SUITE_P(Groups, Conformance,
                         testing::Combine(testing::ValuesIn(test::conformance_checks()),
                                          testing::Values(1, 2, 3, 4, 5, 8)),
                         [](const auto& p) {
                           return std::string(std::get<0>(p.param).name) + std::to_string(std::get<1>(p.param));
                         });

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(ThreadGroups, AnAbsentRankIsNamed) {
  const auto errors = as_ranks(3, 0.3, [](std::unique_ptr<Group> g) {
    g->barrier();
    if (g->rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(900));
      return;
    }
    float x = 1;
    g->all_reduce_sum(&x, 1);
  });
  EXPECT_TRUE(has(errors[0], "rank 0, all_reduce 2: no end within 0.3 s")) << errors[0];
  EXPECT_TRUE(has(errors[0], "rank 2 is alive; it completed barrier 1")) << errors[0];
  EXPECT_TRUE(has(errors[1], "rank 1, all_reduce 2")) << errors[1];
  EXPECT_EQ(errors[2], "");
}

TEST(ThreadGroups, ADestroyedRankEndsTheOthersLongBeforeTheLimit) {
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = as_ranks(3, 3600, [](std::unique_ptr<Group> g) {
    g->barrier();
    if (g->rank() == 1) return;
    g->set_timeout(std::numeric_limits<double>::infinity());
    g->barrier();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
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

TEST(ThreadGroups, DifferentOperationsAreNamed) {
  const auto errors = as_ranks(3, 3600, [](std::unique_ptr<Group> g) {
    float x = 1;
    g->barrier();
    if (g->rank() == 1) {
      g->all_reduce_sum(&x, 1);
    } else {
      g->barrier();
    }
  });
  EXPECT_TRUE(has(errors[0], "rank 0, barrier 2: ranks call different operations")) << errors[0];
  EXPECT_TRUE(has(errors[0], "rank 1 is alive; it entered all_reduce 2")) << errors[0];
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
