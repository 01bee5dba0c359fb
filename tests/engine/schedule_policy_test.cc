// Who goes first, who gives way, and that nobody waits forever; what a prompt takes over from earlier ones.
#include <gtest/gtest.h>

#include "core/error.h"
#include "engine/options.h"
#include "simulation.h"

namespace sluice::engine {
namespace {

using testing::make_sequence;
using testing::own_tokens;
using testing::sequence;
using testing::Simulation;

std::unique_ptr<Sequence> with_priority(std::uint64_t id, std::int32_t priority, std::int64_t prompt = 4,
                                        std::int64_t new_tokens = 2) {
  auto s = sequence(id, prompt, new_tokens);
  s->request.priority = priority;
  return s;
}

SchedulerLimits one_at_a_time(SchedulePolicy policy) { return {16, 1, 16, 4, 64, true, policy}; }

TEST(SchedulePolicy, NamesAreSglangs) {
  EXPECT_EQ(parse_schedule_policy("lpm"), SchedulePolicy::lpm);
  for (const char* name : {"fcfs", "lpm", "priority"}) {
    EXPECT_EQ(schedule_policy_name(parse_schedule_policy(name)), name);
  }
  const auto code = [](const char* name) {
    try {
      parse_schedule_policy(name);
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::check_failed;
  };
  EXPECT_EQ(code("dfs-weight"), ErrorCode::unsupported);
  EXPECT_EQ(code("fastest"), ErrorCode::usage);
}

TEST(SchedulePolicy, PriorityThenAge) {
  Simulation sim(one_at_a_time(SchedulePolicy::priority));
  sim.add(with_priority(1, 0));
  sim.add(with_priority(2, 5));
  sim.add(with_priority(3, -1));
  sim.add(with_priority(4, 5));
  ASSERT_GE(sim.run_until_idle(100), 0);
  EXPECT_EQ(sim.finish_order(), (std::vector<std::uint64_t>{2, 4, 1, 3}));
}

TEST(SchedulePolicy, FcfsIgnoresPriority) {
  Simulation sim(one_at_a_time(SchedulePolicy::fcfs));
  for (std::uint64_t id = 1; id <= 4; ++id) sim.add(with_priority(id, static_cast<std::int32_t>(id)));
  ASSERT_GE(sim.run_until_idle(100), 0);
  EXPECT_EQ(sim.finish_order(), (std::vector<std::uint64_t>{1, 2, 3, 4}));
}

TEST(SchedulePolicy, LongestCachedPrefixFirst) {
  Simulation sim(one_at_a_time(SchedulePolicy::lpm));
  sim.add(sequence(1, 12, 1));
  sim.step();
  ASSERT_TRUE(sim.idle());
  const auto begins_like_1 = [](std::int64_t common, std::uint64_t id) {
    std::vector<std::int32_t> tokens = own_tokens(1, common);
    for (const std::int32_t t : own_tokens(id, 16 - common)) tokens.push_back(t);
    return make_sequence(id, tokens, 1);
  };
  sim.add(begins_like_1(0, 2));
  sim.add(begins_like_1(4, 3));
  sim.add(begins_like_1(12, 4));
  sim.add(begins_like_1(8, 5));
  ASSERT_GE(sim.run_until_idle(100), 0);
  EXPECT_EQ(sim.finish_order(), (std::vector<std::uint64_t>{1, 4, 5, 3, 2}));
  EXPECT_EQ(sim.cached(4), 12);
  EXPECT_EQ(sim.cached(5), 8);
  EXPECT_EQ(sim.cached(3), 4);
  EXPECT_EQ(sim.cached(2), 0);
}

// A stream of requests that the policy prefers: the other one is overtaken just as often as is allowed.
TEST(SchedulePolicy, NobodyStarves) {
  for (const SchedulePolicy policy : {SchedulePolicy::priority, SchedulePolicy::lpm}) {
    Simulation sim(one_at_a_time(policy));
    sim.add(make_sequence(1, own_tokens(1, 9), 1));
    sim.step();
    sim.add(with_priority(2, -5, 8, 2));
    std::uint64_t id = 2;
    while (sim.finished().count(2) == 0 && id < 200) {
      while (sim.scheduler().waiting_count() < 3) {
        auto preferred = make_sequence(++id, own_tokens(1, 9), 1);
        preferred->request.priority = 1;
        sim.add(std::move(preferred));
      }
      sim.step();
    }
    EXPECT_EQ(sim.finished().count(2), 1u) << schedule_policy_name(policy);
    EXPECT_EQ(sim.most_overtaken(), kMostOvertakes) << schedule_policy_name(policy);
  }
}

// 8 blocks of 2; three requests that grow to 8 tokens each: the one of the lowest priority is computed again.
TEST(SchedulePolicy, TheLowestPriorityGivesWay) {
  Simulation sim({16, 4, 16, 2, 8, true, SchedulePolicy::priority});
  sim.add(with_priority(1, -1, 3, 6));
  sim.add(with_priority(2, 3, 3, 6));
  sim.add(with_priority(3, 2, 3, 6));
  ASSERT_GE(sim.run_until_idle(100), 0);
  EXPECT_GT(sim.scheduler().preemptions(), 0);
  EXPECT_EQ(sim.finish_order().back(), 1u);
  EXPECT_EQ(sim.finish_order().front(), 2u);
}

TEST(PrefixReuse, ARepeatedPromptComputesItsLastBlockOnly) {
  Simulation sim({64, 4, 64, 4, 64});
  sim.add(make_sequence(1, own_tokens(9, 18), 1));
  EXPECT_EQ(sim.step().tokens(), 18);
  sim.add(make_sequence(2, own_tokens(9, 18), 1));
  EXPECT_EQ(sim.step().tokens(), 2);
  EXPECT_EQ(sim.cached(2), 16);
  // 16 tokens are whole blocks: the last one must be computed for its logits, in a block of its own.
  sim.add(make_sequence(3, own_tokens(9, 16), 1));
  EXPECT_EQ(sim.step().tokens(), 4);
  EXPECT_EQ(sim.cached(3), 12);
  EXPECT_EQ(sim.scheduler().prefix_hit_tokens(), 28);
}

TEST(PrefixReuse, AnAnswerIsThePrefixOfTheNextTurn) {
  Simulation sim({64, 4, 64, 4, 64});
  sim.add(make_sequence(1, own_tokens(9, 6), 7));
  ASSERT_GE(sim.run_until_idle(50), 0);
  std::vector<std::int32_t> next = sim.finished().at(1);  // 13 tokens, of which the last was never computed
  next.push_back(5);
  sim.add(make_sequence(2, next, 1));
  ASSERT_GE(sim.run_until_idle(50), 0);
  EXPECT_EQ(sim.cached(2), 12);
}

TEST(PrefixReuse, SaltsSeparate) {
  Simulation sim({64, 4, 64, 4, 64});
  const auto salted = [](std::uint64_t id, std::uint64_t salt) {
    auto s = make_sequence(id, own_tokens(9, 18), 1);
    s->request.cache_salt = salt;
    return s;
  };
  sim.add(salted(1, 0));
  sim.step();
  sim.add(salted(2, 77));
  sim.step();
  EXPECT_EQ(sim.cached(2), 0);
  sim.add(salted(3, 77));
  sim.step();
  EXPECT_EQ(sim.cached(3), 16);
}

// Two that arrive together: the second one waits for room in the step, and finds what the first has computed.
TEST(PrefixReuse, RequestsInWorkShareAsTheyGo) {
  Simulation sim({8, 4, 8, 4, 64});
  sim.add(make_sequence(1, own_tokens(9, 30), 2));
  sim.add(make_sequence(2, own_tokens(9, 30), 2));
  std::int64_t computed = 0;
  for (int i = 0; i < 50 && !sim.idle(); ++i) computed += sim.step().tokens();
  EXPECT_TRUE(sim.idle());
  EXPECT_GT(sim.cached(2), 15);
  EXPECT_EQ(computed, 30 + 30 - sim.cached(2) + 2);
}

TEST(PrefixReuse, PromptsThatArriveTogetherAreComputedOnce) {
  Simulation sim({64, 8, 64, 4, 64});
  for (std::uint64_t id = 1; id <= 5; ++id) sim.add(make_sequence(id, own_tokens(9, 30), 3));
  EXPECT_EQ(sim.step().tokens(), 30);
  EXPECT_EQ(sim.step().tokens(), 1 + 4 * 2);
  ASSERT_GE(sim.run_until_idle(10), 0);
  for (std::uint64_t id = 2; id <= 5; ++id) EXPECT_EQ(sim.cached(id), 28) << id;
}

// Without sharing, or with scores that are owed, there is nothing to wait for.
TEST(PrefixReuse, NothingWaitsForWhatItCannotUse) {
  Simulation apart({64, 8, 64, 4, 64, false});
  apart.add(make_sequence(1, own_tokens(9, 30), 3));
  apart.add(make_sequence(2, own_tokens(9, 30), 3));
  EXPECT_EQ(apart.step().tokens(), 60);
  Simulation sim({64, 8, 64, 4, 64});
  sim.add(make_sequence(1, own_tokens(9, 30), 3));
  auto scored = make_sequence(2, own_tokens(9, 30), 3);
  scored->request.prompt_logprobs = true;
  sim.add(std::move(scored));
  sim.add(make_sequence(3, own_tokens(9, 4), 3));  // its only whole block holds its last token
  EXPECT_EQ(sim.step().tokens(), 64);
}

TEST(PrefixReuse, ScoresToComeAreComputed) {
  Simulation sim({64, 4, 64, 4, 64});
  sim.add(make_sequence(1, own_tokens(9, 18), 1));
  sim.step();
  auto scored = make_sequence(2, own_tokens(9, 18), 1);
  scored->request.prompt_logprobs = true;
  sim.add(std::move(scored));
  EXPECT_EQ(sim.step().tokens(), 18);
  EXPECT_EQ(sim.cached(2), 0);
}

// What a sequence had to give up is still there when nobody needed the place.
TEST(PrefixReuse, APreemptedSequenceTakesItsBlocksBack) {
  const auto computed_tokens = [](bool share) {
    Simulation sim({32, 4, 32, 2, 8, share});
    sim.add(sequence(1, 3, 7));
    sim.add(sequence(2, 8, 6));
    std::int64_t computed = 0;
    for (int i = 0; i < 50 && !sim.idle(); ++i) computed += sim.step().tokens();
    EXPECT_TRUE(sim.idle());
    EXPECT_EQ(sim.scheduler().preemptions(), 1);
    EXPECT_EQ(sim.scheduler().prefix_hit_tokens(), 0) << "its own blocks are no hits";
    return computed;
  };
  EXPECT_LT(computed_tokens(true), computed_tokens(false));
}

TEST(PrefixReuse, OldBlocksMakeRoom) {
  Simulation sim({64, 4, 64, 4, 6});
  for (std::uint64_t id = 1; id <= 5; ++id) {
    sim.add(sequence(id, 14, 2));
    ASSERT_GE(sim.run_until_idle(20), 0);
  }
  EXPECT_EQ(sim.scheduler().preemptions(), 0);
  EXPECT_EQ(sim.scheduler().blocks().used(), 0);
  EXPECT_GT(sim.scheduler().blocks().idle(), 0);
  sim.scheduler().clear_prefix_cache();
  EXPECT_EQ(sim.scheduler().blocks().idle(), 0);
}

}  // namespace
}  // namespace sluice::engine
