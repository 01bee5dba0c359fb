// What ranks settle before they load.
#include "app/rank_setup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "model/test_decoder.h"
#include "model/toy_model.h"

namespace sluice::app {
namespace {

using sluice::testing::ToyModel;

template <class Body>
void on_ranks(int ranks, Body body) {
  const auto groups = make_thread_groups(ranks, 20);
  std::vector<std::thread> threads;
  for (const auto& group : groups) threads.emplace_back([&body, &group] { body(*group); });
  for (std::thread& t : threads) t.join();
}

TEST(RankSetup, ThreadsOfAProcessShareItsMachine) {
  on_ranks(3, [](Group& world) {
    const Sharing sharing = find_sharing(world);
    EXPECT_EQ(sharing.memory, 3);
    EXPECT_EQ(sharing.processors, 3);
  });
}

TEST(RankSetup, TheLeastOfAllRanks) {
  on_ranks(4, [](Group& world) {
    const std::int64_t mine[] = {70, 50, 90, 60};
    EXPECT_EQ(least_of(world, mine[world.rank()]), 50);
  });
}

TEST(RankSetup, DigestsTellCheckpointsApartButNotCopies) {
  const ToyModel one({.layers = 1}), same({.layers = 1}), wider({.layers = 1, .vocab = 336});
  const auto digest = [](const ToyModel& m) { return header_digest(*ckpt::Checkpoint::open(m.folder())); };
  EXPECT_EQ(digest(one), digest(same));
  EXPECT_NE(digest(one), digest(wider));
}

}  // namespace
}  // namespace sluice::app
