// Plans as bytes: round trips of random plans, and every kind of damage refused.
#include "engine/step_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "engine/plan_builder.h"

namespace sluice::engine {
namespace {

// A valid plan with random sequences, built as the scheduler builds it.
StepPlan random_plan(std::mt19937& rng) {
  std::vector<Sequence> sequences(rng() % 6);
  std::vector<PlanItem> items;
  for (Sequence& s : sequences) {
    s.id = RequestId{rng() * 0x100000001ull};
    s.request.prompt.resize(1 + rng() % 40);
    s.request.prompt_logprobs = rng() % 2 == 0;
    s.tokens = s.request.prompt;
    for (std::int32_t& t : s.tokens) t = static_cast<std::int32_t>(rng() >> 1);
    s.computed = static_cast<std::int64_t>(rng() % s.tokens.size());
    s.prompt_logprobs.resize(static_cast<std::size_t>(s.computed));
    s.blocks.resize(3, static_cast<std::int32_t>(rng() % 1000));
    items.push_back({&s, 1 + static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(s.pending()))});
  }
  return build_plan(items, rng());
}

TEST(StepPlan, RoundTripsThroughBytes) {
  std::mt19937 rng(7);
  for (int i = 0; i < 200; ++i) {
    const StepPlan plan = random_plan(rng);
    EXPECT_EQ(plan_from_bytes(to_bytes(plan)), plan);
  }
}

TEST(StepPlan, EmptyPlanIsAPlan) {
  const StepPlan plan = build_plan({}, 5);
  EXPECT_EQ(plan.tokens(), 0);
  EXPECT_EQ(plan_from_bytes(to_bytes(plan)), plan);
}

TEST(StepPlan, RefusesEveryTruncation) {
  std::mt19937 rng(8);
  const std::vector<std::byte> bytes = to_bytes(random_plan(rng));
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_THROW(plan_from_bytes(std::span(bytes).first(n)), Error) << n << " of " << bytes.size();
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THROW(plan_from_bytes(longer), Error);
}

// A changed byte gives an error or another valid plan, never a crash or a huge allocation.
TEST(StepPlan, SurvivesEveryFlippedByte) {
  std::mt19937 rng(9);
  const StepPlan plan = random_plan(rng);
  const std::vector<std::byte> bytes = to_bytes(plan);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> changed = bytes;
    changed[i] ^= std::byte{0xff};
    try {
      EXPECT_NE(plan_from_bytes(changed), plan);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input);
    }
  }
}

// One sequence of 3 tokens at positions 0..2, both kinds of rows.
StepPlan small_plan() {
  StepPlan p;
  p.max_blocks = 1;
  p.max_context = 3;
  p.sample_rows = 1;
  p.token_ids = {5, 6, 7};
  p.positions = {0, 1, 2};
  p.query_start = {0, 3};
  p.block_table = {4};
  p.logit_rows = {2, 0, 1};
  p.sequences = {{9, 0, 3, 0, 1, 2, 0}};
  return p;
}

TEST(StepPlan, RefusesListsThatContradictEachOther) {
  EXPECT_NO_THROW(validate(small_plan()));
  const auto refused = [](auto change) {
    StepPlan p = small_plan();
    change(p);
    EXPECT_THROW(validate(p), Error);
    EXPECT_THROW(plan_from_bytes(to_bytes(p)), Error);
  };
  refused([](StepPlan& p) { p.positions.pop_back(); });
  refused([](StepPlan& p) { p.query_start = {0, 2}; });
  refused([](StepPlan& p) { p.query_start = {0}; });
  refused([](StepPlan& p) { p.block_table.push_back(1); });
  refused([](StepPlan& p) { p.logit_rows[1] = 3; });
  refused([](StepPlan& p) { p.logit_rows[0] = -1; });
  refused([](StepPlan& p) { p.sample_rows = 4; });
  refused([](StepPlan& p) { p.sequences[0].sample_row = 1; });
  refused([](StepPlan& p) { p.sequences[0].scores = 3; });
  refused([](StepPlan& p) { p.sequences[0].score_offset = 2; });
  refused([](StepPlan& p) { p.sequences[0].tokens = 2; });
  refused([](StepPlan& p) { p.max_blocks = -1; });
}

}  // namespace
}  // namespace sluice::engine
