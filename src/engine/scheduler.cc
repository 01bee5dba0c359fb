#include "engine/scheduler.h"

#include <algorithm>

#include "core/error.h"

namespace sluice::engine {
namespace {

// What an answer weighs beside prompts when groups are compared. Its length is not known, and its tokens are computed
// with those of others, so it is a guess on the low side.
constexpr std::int64_t kTokensOfAnAnswer = 16;

}  // namespace

// A step being planned.
struct Scheduler::Draft {
  std::vector<PlanItem> decodes;
  std::vector<PlanItem> chunks;
  std::int64_t tokens_left = 0;  // for chunks: what generating sequences need is set aside
  std::int64_t rows_left = 0;
};

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits), pool_(limits.blocks, limits.block_tokens, limits.share_prefixes), waiting_(limits.policy) {
  if (limits.max_sequences < 1 || limits.max_batch_tokens < limits.max_sequences ||
      limits.max_logit_rows < limits.max_sequences || limits.block_tokens < 1) {
    fail(ErrorCode::usage,
         "batch limits: " + std::to_string(limits.max_batch_tokens) + " tokens, " +
             std::to_string(limits.max_logit_rows) + " logit rows, " + std::to_string(limits.max_sequences) +
             " sequences",
         "at least one sequence, and at least as many tokens and rows as sequences");
  }
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) { waiting_.add(std::move(sequence)); }

std::unique_ptr<Sequence> Scheduler::remove(RequestId id) {
  std::unique_ptr<Sequence> found = waiting_.remove(id);
  if (found) return found;  // it holds no blocks
  const auto it = std::find_if(running_.begin(), running_.end(), [id](const auto& s) { return s->id == id; });
  if (it == running_.end()) return nullptr;
  found = std::move(*it);
  running_.erase(it);
  free_blocks(*found);
  return found;
}

std::int64_t Scheduler::load() const {
  std::int64_t tokens = waiting_.prompt_tokens() + (running_count() + waiting_count()) * kTokensOfAnAnswer;
  for (const auto& s : running_) tokens += s->pending();
  return tokens;
}

std::int64_t Scheduler::cached_tokens(const Sequence& s) const {
  const std::span<const std::int32_t> tokens(s.tokens.data(), static_cast<std::size_t>(s.reusable()));
  return pool_.count_published(s.request.cache_salt, tokens) * limits_.block_tokens;
}

ScheduledStep Scheduler::plan() {
  Draft draft;
  const auto decoding = std::count_if(running_.begin(), running_.end(), [](const auto& s) { return s->decoding(); });
  draft.tokens_left = limits_.max_batch_tokens - decoding;
  draft.rows_left = limits_.max_logit_rows - decoding;
  const std::int64_t preemptions_before = preemptions_;
  plan_running(draft);
  if (preemptions_ == preemptions_before) admit(draft);
  std::vector<PlanItem> items = std::move(draft.decodes);
  items.insert(items.end(), draft.chunks.begin(), draft.chunks.end());
  ScheduledStep step{build_plan(items, next_number_++), {}};
  for (const PlanItem& item : items) step.sequences.push_back(item.sequence);
  return step;
}

// Best rank first, so that whoever loses its blocks has not been planned yet. A sequence that gets no block even so
// waits for the next step.
void Scheduler::plan_running(Draft& draft) {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& s = *running_[i];
    const bool decoding = s.decoding();
    if (!decoding) count_hits(s, reuse_prefix(s));
    const std::int64_t wanted = decoding ? 1 : chunk_size(draft, s);
    if (wanted == 0) continue;
    std::int64_t tokens = reserve(s, wanted);
    while (tokens == 0 && i + 1 < running_.size()) {
      preempt_last();
      tokens = reserve(s, wanted);
    }
    if (tokens == 0) continue;
    if (decoding) {
      draft.decodes.push_back({&s, 1});
    } else {
      plan_chunk(draft, s, tokens);
    }
  }
}

void Scheduler::admit(Draft& draft) {
  while (!waiting_.empty() && running_count() < limits_.max_sequences && draft.tokens_left > 0) {
    Sequence& s = *waiting_.next(pool_);
    const std::int64_t reused = reuse_prefix(s);
    const std::int64_t wanted = chunk_size(draft, s);
    const std::int64_t missing = blocks_for(s.length() + 1) - std::ssize(s.blocks);
    const bool fits = pool_.available() - blocks_owed() >= missing;
    const bool full = wanted == 0 || (!fits && !running_.empty());
    if (full || is_being_computed(draft, s)) return free_blocks(s);
    run(waiting_.take(&s));
    count_hits(s, reused);
    plan_chunk(draft, s, reserve(s, wanted));
  }
}

void Scheduler::run(std::unique_ptr<Sequence> sequence) {
  const auto at = std::find_if(running_.begin(), running_.end(),
                               [&](const auto& s) { return outranks(*sequence, *s, limits_.policy); });
  running_.insert(at, std::move(sequence));
}

void Scheduler::plan_chunk(Draft& draft, Sequence& sequence, std::int64_t tokens) {
  draft.chunks.push_back({&sequence, tokens});
  draft.tokens_left -= tokens;
  draft.rows_left -= score_range(sequence, tokens).count + (needs_sample(sequence, tokens) ? 1 : 0);
}

// Takes over the blocks that others have computed of what comes next, as long as nothing is computed beyond them. How
// many tokens they hold.
std::int64_t Scheduler::reuse_prefix(Sequence& s) {
  const std::int64_t computed_before = s.computed;
  const auto width = static_cast<std::size_t>(limits_.block_tokens);
  while (s.computed == s.published * limits_.block_tokens && std::ssize(s.blocks) == s.published &&
         s.computed + limits_.block_tokens <= s.reusable()) {
    const std::int32_t parent = s.blocks.empty() ? PrefixCache::kRoot : s.blocks.back();
    const std::span<const std::int32_t> tokens(s.tokens.data() + s.computed, width);
    const std::int32_t block = pool_.acquire(parent, s.request.cache_salt, tokens);
    if (block < 0) break;
    s.blocks.push_back(block);
    s.computed += limits_.block_tokens;
    ++s.published;
  }
  return s.computed - computed_before;
}

// Whether this step computes the block that `s` needs next for another sequence: then it is worth waiting for.
bool Scheduler::is_being_computed(const Draft& draft, const Sequence& s) const {
  const std::int64_t width = limits_.block_tokens;
  if (!limits_.share_prefixes || s.computed + width > s.reusable()) return false;
  const auto begins_alike = [&](const PlanItem& item) {
    const Sequence& other = *item.sequence;
    if (other.computed != s.computed || item.tokens < width || other.request.cache_salt != s.request.cache_salt)
      return false;
    const auto parents = static_cast<std::ptrdiff_t>(s.blocks.size());
    const auto first = s.tokens.begin() + s.computed;
    return std::equal(s.blocks.begin(), s.blocks.end(), other.blocks.begin(), other.blocks.begin() + parents) &&
           std::equal(first, first + width, other.tokens.begin() + other.computed);
  };
  return std::any_of(draft.chunks.begin(), draft.chunks.end(), begins_alike);
}

void Scheduler::count_hits(Sequence& sequence, std::int64_t tokens) {
  if (sequence.preempted) return;
  sequence.cached_tokens += tokens;
  prefix_hit_tokens_ += tokens;
}

void Scheduler::publish(Sequence& s) {
  const auto width = static_cast<std::size_t>(limits_.block_tokens);
  while ((s.published + 1) * limits_.block_tokens <= s.computed) {
    const auto i = static_cast<std::size_t>(s.published);
    const std::int32_t parent = i == 0 ? PrefixCache::kRoot : s.blocks[i - 1];
    const std::span<const std::int32_t> tokens(s.tokens.data() + i * width, width);
    const KvPool::Published result = pool_.publish(s.blocks[i], parent, s.request.cache_salt, tokens);
    s.blocks[i] = result.block;
    if (!result.shared) return;
    ++s.published;
  }
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
    const std::int32_t block = pool_.allocate();
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

void Scheduler::preempt_last() {
  std::unique_ptr<Sequence> s = std::move(running_.back());
  running_.pop_back();
  free_blocks(*s);
  s->preempted = true;
  waiting_.add(std::move(s));
  ++preemptions_;
}

void Scheduler::free_blocks(Sequence& sequence) {
  pool_.release(sequence.blocks);
  sequence.blocks.clear();
  sequence.computed = 0;
  sequence.published = 0;
}

}  // namespace sluice::engine
