// Random limits, policies, arrivals with common beginnings, scores, priorities and cancellations: every read finds what
// its own tokens would have written, everyone finishes, nothing leaks, nobody is overtaken without end.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "simulation.h"

namespace sluice::engine {
namespace {

using testing::make_sequence;
using testing::Simulation;

struct Arrival {
  std::vector<std::int32_t> prompt;  // of two tokens only
  std::int64_t new_tokens;
  std::int32_t priority;
  std::uint64_t salt;
  bool scores;
  std::size_t steps_before;  // since the last arrival
  std::size_t cancel;        // one of the requests so far, when it is small enough
};

rc::Gen<Arrival> any_arrival() {
  const auto prompt = rc::gen::mapcat(rc::gen::inRange<std::size_t>(1, 15), [](std::size_t n) {
    return rc::gen::container<std::vector<std::int32_t>>(n, rc::gen::weightedElement<std::int32_t>({{5, 1}, {1, 2}}));
  });
  return rc::gen::construct<Arrival>(prompt, rc::gen::inRange<std::int64_t>(1, 11),
                                     rc::gen::inRange<std::int32_t>(-1, 2),
                                     rc::gen::weightedElement<std::uint64_t>({{5, 0}, {1, 7}}),
                                     rc::gen::weightedElement<bool>({{3, false}, {1, true}}),
                                     rc::gen::inRange<std::size_t>(0, 4), rc::gen::inRange<std::size_t>(0, 60));
}

rc::Gen<SchedulerLimits> any_limits() {
  return rc::gen::exec([] {
    SchedulerLimits l;
    l.max_sequences = *rc::gen::inRange<std::int64_t>(1, 7);
    l.max_batch_tokens = l.max_sequences + *rc::gen::inRange<std::int64_t>(0, 20);
    l.max_logit_rows = l.max_sequences + *rc::gen::inRange<std::int64_t>(0, 6);
    l.block_tokens = *rc::gen::inRange<std::int64_t>(1, 6);
    l.blocks = (24 + l.block_tokens - 1) / l.block_tokens + *rc::gen::inRange<std::int64_t>(0, 6);
    l.share_prefixes = *rc::gen::weightedElement<bool>({{4, true}, {1, false}});
    l.policy = *rc::gen::element(SchedulePolicy::fcfs, SchedulePolicy::lpm, SchedulePolicy::priority);
    return l;
  });
}

std::unique_ptr<Sequence> sequence_of(const Arrival& a, std::uint64_t id) {
  auto s = make_sequence(id, a.prompt, a.new_tokens);
  s->request.prompt_logprobs = a.scores;
  s->request.priority = a.priority;
  s->request.cache_salt = a.salt;
  return s;
}

RC_GTEST_PROP(SchedulerProperty, EveryRequestFinishesAndNothingLeaks, ()) {
  const SchedulerLimits limits = *any_limits();
  const auto arrivals = *rc::gen::container<std::vector<Arrival>>(any_arrival());
  Simulation sim(limits);
  std::uint64_t id = 0;
  std::size_t cancelled = 0;
  for (const Arrival& a : arrivals) {
    for (std::size_t i = 0; i < a.steps_before; ++i) sim.step();
    sim.add(sequence_of(a, ++id));
    if (a.cancel <= id && sim.scheduler().remove(RequestId{a.cancel}) != nullptr) ++cancelled;
    if (::testing::Test::HasFailure()) RC_FAIL("a step read what its tokens did not write");
  }
  RC_ASSERT(sim.run_until_idle(5000) >= 0);
  RC_ASSERT_FALSE(::testing::Test::HasFailure());
  RC_ASSERT(sim.finished().size() + cancelled == arrivals.size());
  RC_ASSERT(sim.scheduler().blocks().used() == 0);
  RC_ASSERT(sim.scheduler().waiting_tokens() == 0);
  RC_ASSERT(sim.most_overtaken() <= kMostOvertakes);
  if (!limits.share_prefixes) {
    RC_ASSERT(sim.scheduler().blocks().idle() == 0);
    RC_ASSERT(sim.scheduler().prefix_hit_tokens() == 0);
  }
  sim.scheduler().clear_prefix_cache();
  RC_ASSERT(sim.scheduler().blocks().available() == limits.blocks);
}

}  // namespace
}  // namespace sluice::engine
