// What ranks settle before they load.
#include "app/rank_setup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "app/parallel_choice.h"
#include "app/wiring.h"
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

TEST(RankSetup, AllRanksUseTheLeastInstructionSetOfAll) {
  using cpu::Isa;
  on_ranks(4, [](Group& world) {
    const Isa mine[] = {Isa::avx512, Isa::avx512_bf16, Isa::avx2, Isa::avx512};
    const CommonIsa common = common_isa(world, mine[world.rank()]);
    EXPECT_EQ(common.isa, Isa::avx2);
    EXPECT_EQ(common.note,
              "instruction set avx2 on all ranks, the most that rank 2 may use; rank 1 could use avx512-bf16");
  });
}

TEST(RankSetup, NothingIsSaidOfInstructionSetsThatAreTheSame) {
  on_ranks(3, [](Group& world) {
    const CommonIsa common = common_isa(world, cpu::Isa::avx512);
    EXPECT_EQ(common.isa, cpu::Isa::avx512);
    EXPECT_EQ(common.note, "");
  });
}

// Ranks that route the same tokens for themselves may not differ in the last bit of a logit.
TEST(RankSetup, ALimitOfOneRankIsThatOfAll) {
  const ToyModel toy({.layers = 1});
  on_ranks(2, [&](Group& world) {
    LoadOptions options;
    options.threads = 1;
    options.world = &world;
    options.parallel = choose_parallel({.tp = 2}).sizes;
    options.isa = world.rank() == 1 ? "scalar" : "auto";
    const OpenedModel model = open_model(toy.folder(), options, {});
    EXPECT_EQ(model.isa, cpu::Isa::scalar);
    EXPECT_NE(model.backend->describe().find("scalar"), std::string::npos) << model.backend->describe();
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
