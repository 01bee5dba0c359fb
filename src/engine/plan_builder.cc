#include "engine/plan_builder.h"

#include <algorithm>

namespace sluice::engine {
namespace {

std::int32_t narrow(std::int64_t v) { return static_cast<std::int32_t>(v); }

void add_tokens(StepPlan& plan, const PlanItem& item) {
  const Sequence& s = *item.sequence;
  PlanSequence& p = plan.sequences.emplace_back();
  p.request = static_cast<std::uint64_t>(s.id);
  p.first_token = narrow(plan.tokens());
  p.tokens = narrow(item.tokens);
  for (std::int64_t i = s.computed; i < s.computed + item.tokens; ++i) {
    plan.token_ids.push_back(s.tokens[static_cast<std::size_t>(i)]);
    plan.positions.push_back(narrow(i));
  }
  plan.query_start.push_back(narrow(plan.tokens()));
  plan.max_context = std::max(plan.max_context, s.computed + item.tokens);
}

void add_block_tables(StepPlan& plan, const std::vector<PlanItem>& items) {
  for (const PlanItem& item : items)
    plan.max_blocks = std::max(plan.max_blocks, narrow(std::ssize(item.sequence->blocks)));
  plan.block_table.assign(items.size() * static_cast<std::size_t>(plan.max_blocks), 0);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::vector<std::int32_t>& blocks = items[i].sequence->blocks;
    std::copy(blocks.begin(), blocks.end(), plan.block_table.begin() + narrow(i) * plan.max_blocks);
  }
}

// Sampled rows come first, so that one call samples a contiguous block of logits.
void add_logit_rows(StepPlan& plan, const std::vector<PlanItem>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!needs_sample(*items[i].sequence, items[i].tokens)) continue;
    PlanSequence& p = plan.sequences[i];
    p.sample_row = plan.sample_rows++;
    plan.logit_rows.push_back(p.first_token + p.tokens - 1);
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const ScoreRange range = score_range(*items[i].sequence, items[i].tokens);
    PlanSequence& p = plan.sequences[i];
    p.first_score = narrow(std::ssize(plan.logit_rows));
    p.scores = narrow(range.count);
    p.score_offset = narrow(range.first);
    for (std::int64_t r = 0; r < range.count; ++r)
      plan.logit_rows.push_back(p.first_token + p.score_offset + narrow(r));
  }
}

}  // namespace

ScoreRange score_range(const Sequence& sequence, std::int64_t tokens) {
  if (!sequence.request.prompt_logprobs) return {};
  const std::int64_t first = std::max(sequence.computed, sequence.scored());
  const std::int64_t last = std::min(sequence.computed + tokens, sequence.prompt_length() - 1);
  if (last <= first) return {};
  return {first - sequence.computed, last - first};
}

bool needs_sample(const Sequence& sequence, std::int64_t tokens) {
  return tokens == sequence.pending() && sequence.wants_sample();
}

StepPlan build_plan(const std::vector<PlanItem>& items, std::uint64_t number) {
  StepPlan plan;
  plan.number = number;
  plan.query_start.push_back(0);
  for (const PlanItem& item : items) add_tokens(plan, item);
  add_block_tables(plan, items);
  add_logit_rows(plan, items);
  return plan;
}

}  // namespace sluice::engine
