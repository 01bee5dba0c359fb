// The scheduler against a model of the KV cache: whatever the limits, every sequence finishes, and every step reads
// exactly the keys that the sequence wrote.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "simulation.h"

namespace sluice::engine {
namespace {

using testing::make_sequence;
using testing::own_tokens;
using testing::sequence;
using testing::Simulation;

TEST(Scheduler, RefusesLimitsThatCouldStallIt) {
  EXPECT_THROW(Scheduler({15, 16, 64, 16, 10}), Error);
  EXPECT_THROW(Scheduler({64, 16, 15, 16, 10}), Error);
  EXPECT_THROW(Scheduler({64, 0, 64, 16, 10}), Error);
}

TEST(Scheduler, ChunksAPromptAndThenTakesOneTokenAStep) {
  Simulation sim({8, 4, 8, 4, 10});
  sim.add(sequence(1, 19, 3));
  EXPECT_EQ(sim.step().tokens(), 8);
  EXPECT_EQ(sim.step().tokens(), 8);
  const StepPlan last = sim.step();
  EXPECT_EQ(last.tokens(), 3);
  EXPECT_EQ(last.sample_rows, 1);
  EXPECT_EQ(sim.step().tokens(), 1);
  EXPECT_EQ(sim.step().tokens(), 1);
  EXPECT_TRUE(sim.idle());
  EXPECT_EQ(sim.scheduler().blocks().used(), 0);
}

TEST(Scheduler, DecodesGoFirstAndPromptsFillTheRest) {
  Simulation sim({8, 4, 8, 4, 20});
  sim.add(sequence(1, 2, 10));
  sim.step();
  sim.add(sequence(2, 20, 1));
  const StepPlan plan = sim.step();
  ASSERT_EQ(plan.sequences.size(), 2u);
  EXPECT_EQ(plan.sequences[0].request, 1u);
  EXPECT_EQ(plan.sequences[0].tokens, 1);
  EXPECT_EQ(plan.sequences[1].request, 2u);
  EXPECT_EQ(plan.sequences[1].tokens, 7);
}

TEST(Scheduler, YoungestGivesWayAndIsComputedAgain) {
  // 6 blocks of 2: both sequences are admitted (2 blocks each, and one more owed), but cannot both grow to 9 tokens.
  Simulation sim({16, 4, 16, 2, 6});
  sim.add(sequence(1, 3, 6));
  sim.add(sequence(2, 3, 6));
  int steps = 0;
  while (!sim.idle() && ++steps < 100) sim.step();
  EXPECT_GT(sim.scheduler().preemptions(), 0);
  EXPECT_EQ(sim.finished().at(1).size(), 9u);
  EXPECT_EQ(sim.finished().at(2).size(), 9u);
}

TEST(Scheduler, WaitsForRoomForAWholePrompt) {
  Simulation sim({64, 4, 64, 4, 8});
  sim.add(sequence(1, 20, 4));
  sim.add(sequence(2, 12, 1));  // 4 blocks with its next token; 3 are free, 1 is owed
  const StepPlan plan = sim.step();
  EXPECT_EQ(plan.sequences.size(), 1u);
  EXPECT_EQ(sim.scheduler().waiting_count(), 1);
}

TEST(Scheduler, RemoveFreesBlocksWhereverTheSequenceIs) {
  Simulation sim({8, 1, 8, 4, 10});
  sim.add(sequence(1, 12, 5));
  sim.add(sequence(2, 12, 5));
  sim.step();
  EXPECT_GT(sim.scheduler().blocks().used(), 0);
  EXPECT_NE(sim.scheduler().remove(RequestId{1}), nullptr);
  EXPECT_EQ(sim.scheduler().blocks().used(), 0);
  EXPECT_NE(sim.scheduler().remove(RequestId{2}), nullptr);
  EXPECT_EQ(sim.scheduler().remove(RequestId{3}), nullptr);
  EXPECT_TRUE(sim.idle());
  EXPECT_EQ(sim.step().tokens(), 0);
}

TEST(Scheduler, FirstComeFirstServed) {
  Simulation sim({4, 2, 4, 4, 30});
  for (std::uint64_t id = 1; id <= 5; ++id) sim.add(sequence(id, 6, 2));
  std::vector<std::uint64_t> order;
  int steps = 0;
  while (!sim.idle() && ++steps < 200) {
    const StepPlan plan = sim.step();
    for (const PlanSequence& p : plan.sequences) {
      if (order.empty() || order.back() < p.request) order.push_back(p.request);
    }
  }
  EXPECT_EQ(order, (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
}

// Random limits, arrivals, scores and cancellations; the cache model checks every read.
TEST(Scheduler, RandomLoadAlwaysFinishes) {
  std::mt19937 rng(99);
  std::int64_t preemptions = 0;
  for (int round = 0; round < 150; ++round) {
    SchedulerLimits limits;
    limits.max_sequences = 1 + static_cast<std::int64_t>(rng() % 6);
    limits.max_batch_tokens = limits.max_sequences + static_cast<std::int64_t>(rng() % 20);
    limits.max_logit_rows = limits.max_sequences + static_cast<std::int64_t>(rng() % 6);
    limits.block_tokens = 1 + static_cast<std::int64_t>(rng() % 5);
    limits.blocks = (24 + limits.block_tokens - 1) / limits.block_tokens + static_cast<std::int64_t>(rng() % 6);
    Simulation sim(limits);
    std::size_t cancelled = 0;
    std::uint64_t next_id = 1;
    int steps = 0;
    while (next_id <= 12 || !sim.idle()) {
      ASSERT_LT(++steps, 3000) << "round " << round << " does not finish";
      if (next_id <= 12 && rng() % 3 == 0) {
        auto s =
            sequence(next_id++, 1 + static_cast<std::int64_t>(rng() % 14), 1 + static_cast<std::int64_t>(rng() % 11));
        s->request.prompt_logprobs = rng() % 3 == 0;
        sim.add(std::move(s));
      }
      if (rng() % 40 == 0 && sim.scheduler().remove(RequestId{1 + rng() % 12}) != nullptr) ++cancelled;
      sim.step();
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(sim.finished().size() + cancelled, 12u);
    EXPECT_EQ(sim.scheduler().blocks().used(), 0);
    preemptions += sim.scheduler().preemptions();
  }
  EXPECT_GT(preemptions, 20) << "the load does not exercise preemption";
}

}  // namespace
}  // namespace sluice::engine
