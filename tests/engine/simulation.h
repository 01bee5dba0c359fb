// The scheduler with a cache that remembers what was computed into each cell: the whole beginning of the text up to
// it. Shared by the scheduler's tests. A step that reads anything but what its own tokens would have written fails.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "engine/scheduler.h"

namespace sluice::engine::testing {

inline std::unique_ptr<Sequence> make_sequence(std::uint64_t id, std::vector<std::int32_t> prompt,
                                               std::int64_t new_tokens) {
  Request r;
  r.prompt = std::move(prompt);
  r.max_new_tokens = new_tokens;
  return std::make_unique<Sequence>(RequestId{id}, std::move(r));
}

// A prompt that no other request begins like.
inline std::vector<std::int32_t> own_tokens(std::uint64_t id, std::int64_t count) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(id * 1000 + static_cast<std::uint64_t>(i)));
  return tokens;
}

inline std::unique_ptr<Sequence> sequence(std::uint64_t id, std::int64_t prompt, std::int64_t new_tokens) {
  return make_sequence(id, own_tokens(id, prompt), new_tokens);
}

class Simulation {
 public:
  explicit Simulation(const SchedulerLimits& limits) : limits_(limits), scheduler_(limits) {}

  Scheduler& scheduler() { return scheduler_; }
  bool idle() const { return scheduler_.running_count() + scheduler_.waiting_count() == 0; }
  const std::map<std::uint64_t, std::vector<std::int32_t>>& finished() const { return finished_; }
  const std::vector<std::uint64_t>& finish_order() const { return finish_order_; }
  // Prompt tokens that a finished request found in the prefix cache.
  std::int64_t cached(std::uint64_t id) const { return cached_.at(id); }

  std::int64_t most_overtaken() const { return most_overtaken_; }

  void add(std::unique_ptr<Sequence> s) { scheduler_.add(std::move(s)); }

  StepPlan step() {
    ScheduledStep scheduled = scheduler_.plan();
    validate(scheduled.plan);
    check_limits(scheduled.plan);
    for (std::size_t i = 0; i < scheduled.sequences.size(); ++i) run(scheduled.plan, i, *scheduled.sequences[i]);
    return std::move(scheduled.plan);
  }

  // Number of steps, or -1 when it takes more than `most`.
  int run_until_idle(int most) {
    for (int steps = 0; steps <= most; ++steps) {
      if (idle()) return steps;
      step();
      if (::testing::Test::HasFatalFailure()) return -1;
    }
    return -1;
  }

 private:
  struct Cell {
    std::uint64_t salt = 0;
    std::vector<std::int32_t> text;  // up to and with the token of the cell
    bool operator==(const Cell&) const = default;
  };

  void check_limits(const StepPlan& plan) const {
    EXPECT_LE(plan.tokens(), limits_.max_batch_tokens);
    EXPECT_LE(std::ssize(plan.sequences), limits_.max_sequences);
    EXPECT_LE(std::ssize(plan.logit_rows), limits_.max_logit_rows);
    EXPECT_FALSE(plan.sequences.empty() && scheduler_.running_count() > 0) << "a step without work";
  }

  Cell& cell(const StepPlan& plan, std::size_t i, std::int64_t position) {
    const std::int64_t block = position / limits_.block_tokens;
    EXPECT_LT(block, plan.max_blocks);
    const std::int32_t id =
        plan.block_table[i * static_cast<std::size_t>(plan.max_blocks) + static_cast<std::size_t>(block)];
    EXPECT_LT(id, limits_.blocks);
    return cache_[id * limits_.block_tokens + position % limits_.block_tokens];
  }

  static Cell expected(const Sequence& s, std::int64_t position) {
    return {s.request.cache_salt, {s.tokens.begin(), s.tokens.begin() + position + 1}};
  }

  void run(const StepPlan& plan, std::size_t i, Sequence& s) {
    const PlanSequence& p = plan.sequences[i];
    ASSERT_EQ(p.request, static_cast<std::uint64_t>(s.id));
    ASSERT_LE(s.computed, s.reusable()) << "a token was skipped whose logits are wanted";
    for (std::int32_t t = p.first_token; t < p.first_token + p.tokens; ++t) {
      const auto row = static_cast<std::size_t>(t);
      EXPECT_EQ(plan.positions[row], s.computed + (t - p.first_token));
      EXPECT_EQ(plan.token_ids[row], s.tokens[static_cast<std::size_t>(plan.positions[row])]);
      cell(plan, i, plan.positions[row]) = expected(s, plan.positions[row]);
    }
    s.computed += p.tokens;
    for (std::int64_t position = 0; position < s.computed; ++position)
      ASSERT_EQ(cell(plan, i, position), expected(s, position)) << "request " << p.request << " position " << position;
    for (std::int32_t r = 0; r < p.scores; ++r) {
      ASSERT_EQ(plan.logit_rows[static_cast<std::size_t>(p.first_score + r)], p.first_token + p.score_offset + r);
      ASSERT_EQ(plan.positions[static_cast<std::size_t>(p.first_token + p.score_offset + r)], s.scored());
      s.prompt_logprobs.push_back(0.0f);
    }
    scheduler_.publish(s);
    generate(plan, p, s);
  }

  void generate(const StepPlan& plan, const PlanSequence& p, Sequence& s) {
    ASSERT_EQ(p.sample_row >= 0, s.pending() == 0);
    if (p.sample_row < 0) return;
    ASSERT_EQ(plan.logit_rows[static_cast<std::size_t>(p.sample_row)], p.first_token + p.tokens - 1);
    s.tokens.push_back(static_cast<std::int32_t>(p.request * 1000 + static_cast<std::uint64_t>(s.length())));
    if (s.generated() < s.request.max_new_tokens) return;
    if (s.request.prompt_logprobs) {
      ASSERT_EQ(s.scored(), s.prompt_length() - 1);
    }
    finished_[p.request] = s.tokens;
    finish_order_.push_back(p.request);
    cached_[p.request] = s.cached_tokens;
    most_overtaken_ = std::max(most_overtaken_, s.overtaken);
    scheduler_.remove(RequestId{p.request});
  }

  SchedulerLimits limits_;
  Scheduler scheduler_;
  std::map<std::int64_t, Cell> cache_;
  std::map<std::uint64_t, std::vector<std::int32_t>> finished_;
  std::map<std::uint64_t, std::int64_t> cached_;
  std::vector<std::uint64_t> finish_order_;
  std::int64_t most_overtaken_ = 0;
};

}  // namespace sluice::engine::testing
