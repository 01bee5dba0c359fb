#include "engine/scheduler.h"

#include <algorithm>

#include "core/error.h"

namespace sluice::engine {

// A step being planned.
struct Scheduler::Draft {
  std::vector<PlanItem> decodes;
  std::vector<PlanItem> chunks;
  std::int64_t tokens_left = 0;  // for chunks: what generating sequences need is set aside
  std::int64_t rows_left = 0;
};

Scheduler::Scheduler(const SchedulerLimits& limits) : limits_(limits), blocks_(limits.blocks) {
  if (limits.max_sequences < 1 || limits.max_batch_tokens < limits.max_sequences ||
      limits.max_logit_rows < limits.max_sequences || limits.block_tokens < 1) {
    fail(ErrorCode::usage,
         "batch limits: " + std::to_string(limits.max_batch_tokens) + " tokens, " +
             std::to_string(limits.max_logit_rows) + " logit rows, " + std::to_string(limits.max_sequences) +
             " sequences",
         "at least one sequence, and at least as many tokens and rows as sequences");
  }
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }

std::unique_ptr<Sequence> Scheduler::remove(RequestId id) {
  const auto take = [id](auto& list) -> std::unique_ptr<Sequence> {
    const auto it = std::find_if(list.begin(), list.end(), [id](const auto& s) { return s->id == id; });
    if (it == list.end()) return nullptr;
    std::unique_ptr<Sequence> found = std::move(*it);
    list.erase(it);
    return found;
  };
  std::unique_ptr<Sequence> found = take(running_);
  if (!found) found = take(waiting_);
  if (found) free_blocks(*found);
  return found;
}

Sequence* Scheduler::running(RequestId id) {
  const auto it = std::find_if(running_.begin(), running_.end(), [id](const auto& s) { return s->id == id; });
  return it == running_.end() ? nullptr : it->get();
}

std::int64_t Scheduler::waiting_tokens() const {
  std::int64_t tokens = 0;
  for (const auto& s : waiting_) tokens += s->prompt_length();
  return tokens;
}

StepPlan Scheduler::plan() {
  Draft draft;
  const auto decoding = std::count_if(running_.begin(), running_.end(), [](const auto& s) { return s->decoding(); });
  draft.tokens_left = limits_.max_batch_tokens - decoding;
  draft.rows_left = limits_.max_logit_rows - decoding;
  const std::int64_t preemptions_before = preemptions_;
  plan_running(draft);
  if (preemptions_ == preemptions_before) admit(draft);
  std::vector<PlanItem> items = std::move(draft.decodes);
  items.insert(items.end(), draft.chunks.begin(), draft.chunks.end());
  return build_plan(items, next_number_++);
}

// Oldest first, so that whoever loses its blocks has not been planned yet. A sequence that gets no block even so waits
// for the next step.
void Scheduler::plan_running(Draft& draft) {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& s = *running_[i];
    const std::int64_t wanted = s.decoding() ? 1 : chunk_size(draft, s);
    if (wanted == 0) continue;
    std::int64_t tokens = reserve(s, wanted);
    while (tokens == 0 && i + 1 < running_.size()) {
      preempt_youngest();
      tokens = reserve(s, wanted);
    }
    if (tokens == 0) continue;
    if (s.decoding()) {
      draft.decodes.push_back({&s, 1});
    } else {
      take_chunk(draft, s, tokens);
    }
  }
}

void Scheduler::admit(Draft& draft) {
  while (!waiting_.empty() && running_count() < limits_.max_sequences && draft.tokens_left > 0) {
    Sequence& s = *waiting_.front();
    const std::int64_t wanted = chunk_size(draft, s);
    const bool fits = blocks_.available() - blocks_owed() >= blocks_for(s.length() + 1);
    if (wanted == 0 || (!fits && !running_.empty())) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    take_chunk(draft, s, reserve(s, wanted));
  }
}

void Scheduler::take_chunk(Draft& draft, const Sequence& sequence, std::int64_t tokens) {
  draft.chunks.push_back({&sequence, tokens});
  draft.tokens_left -= tokens;
  draft.rows_left -= score_range(sequence, tokens).count + (needs_sample(sequence, tokens) ? 1 : 0);
}

// As many of the pending tokens as the step's tokens and rows of logits leave room for.
std::int64_t Scheduler::chunk_size(const Draft& draft, const Sequence& sequence) const {
  std::int64_t tokens = std::min(sequence.pending(), draft.tokens_left);
  const auto rows = [&] { return score_range(sequence, tokens).count + (needs_sample(sequence, tokens) ? 1 : 0); };
  while (tokens > 0 && rows() > draft.rows_left) tokens -= std::max<std::int64_t>(1, rows() - draft.rows_left - 1);
  return std::max<std::int64_t>(tokens, 0);
}

// Grows the blocks of a sequence for its next `tokens` tokens as far as there are free ones; how many of them fit.
std::int64_t Scheduler::reserve(Sequence& sequence, std::int64_t tokens) {
  const std::int64_t needed = blocks_for(sequence.computed + tokens);
  while (std::ssize(sequence.blocks) < needed) {
    const std::int32_t block = blocks_.allocate();
    if (block < 0) break;
    sequence.blocks.push_back(block);
  }
  return std::min(tokens, std::ssize(sequence.blocks) * limits_.block_tokens - sequence.computed);
}

// Blocks that the running sequences need for the tokens they have, and the next one, beyond those that they hold.
std::int64_t Scheduler::blocks_owed() const {
  std::int64_t owed = 0;
  for (const auto& s : running_) owed += std::max<std::int64_t>(0, blocks_for(s->length() + 1) - std::ssize(s->blocks));
  return owed;
}

void Scheduler::preempt_youngest() {
  std::unique_ptr<Sequence> s = std::move(running_.back());
  running_.pop_back();
  free_blocks(*s);
  s->computed = 0;
  waiting_.push_front(std::move(s));
  ++preemptions_;
}

void Scheduler::free_blocks(Sequence& sequence) {
  for (const std::int32_t block : sequence.blocks) blocks_.release(block);
  sequence.blocks.clear();
}

}  // namespace sluice::engine
