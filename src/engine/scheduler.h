// Chooses what each step computes: continuous batching with chunked prefill over a fixed number of KV blocks.
//
// Owned by Engine, one thread. A step takes one token of every sequence that is generating, then fills up with prompt
// chunks of running sequences, best rank first, then admits waiting requests in the order of the policy (queue.h).
// Beginnings that another sequence has computed are taken over block by block instead of computed again; a waiting
// request whose next block is part of the step waits for it, and those behind it too.
//
// Blocks are taken as tokens need them. When they run out, the running sequence of the lowest rank gives up its blocks
// and goes back to the queue, to be computed again; so the one of the highest rank always makes progress, and each
// request finishes because submit refuses what would not fit alone. To keep that rare, a request is admitted only when
// all its tokens and those of the running prompts fit into what is free.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kv_pool.h"
#include "engine/plan_builder.h"
#include "engine/queue.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"

namespace sluice::engine {

struct SchedulerLimits {
  std::int64_t max_batch_tokens = 512;  // at least max_sequences
  std::int64_t max_sequences = 16;
  std::int64_t max_logit_rows = 64;  // at least max_sequences
  std::int64_t block_tokens = 16;
  std::int64_t blocks = 0;
  bool share_prefixes = true;
  SchedulePolicy policy = SchedulePolicy::fcfs;
};

struct ScheduledStep {
  StepPlan plan;
  std::vector<Sequence*> sequences;  // [S] as in the plan
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  void add(std::unique_ptr<Sequence> sequence);  // ids ascend
  // Takes a sequence out, running or waiting, and frees its blocks. nullptr when there is none with this id.
  std::unique_ptr<Sequence> remove(RequestId id);

  // The next step. Empty only when nothing is in work. The caller then adds the tokens of each PlanSequence to
  // `computed` and calls publish, or leaves the sequences as they are to have the same tokens planned again.
  ScheduledStep plan();

  // Lets other sequences share the blocks that `sequence` has filled. Not for one whose results were damaged.
  void publish(Sequence& sequence);

  void clear_prefix_cache() { pool_.clear(); }

  // Tokens that are still to be read, and a share for every request in work: how long a new one would wait.
  std::int64_t load() const;
  // How much of the beginning of a new sequence other sequences have computed.
  std::int64_t cached_tokens(const Sequence& sequence) const;

  std::int64_t running_count() const { return std::ssize(running_); }
  std::int64_t waiting_count() const { return waiting_.size(); }
  std::int64_t waiting_tokens() const { return waiting_.prompt_tokens(); }
  std::int64_t preemptions() const { return preemptions_; }
  std::int64_t prefix_hit_tokens() const { return prefix_hit_tokens_; }  // of prompts, before any preemption
  const KvPool& blocks() const { return pool_; }
  std::int64_t blocks_for(std::int64_t tokens) const {
    return (tokens + limits_.block_tokens - 1) / limits_.block_tokens;
  }

 private:
  struct Draft;
  void plan_running(Draft& draft);
  void plan_chunk(Draft& draft, Sequence& sequence, std::int64_t tokens);
  void admit(Draft& draft);
  void run(std::unique_ptr<Sequence> sequence);
  std::int64_t reuse_prefix(Sequence& sequence);
  bool is_being_computed(const Draft& draft, const Sequence& sequence) const;
  void count_hits(Sequence& sequence, std::int64_t tokens);
  std::int64_t chunk_size(const Draft& draft, const Sequence& sequence) const;
  std::int64_t reserve(Sequence& sequence, std::int64_t tokens);
  std::int64_t blocks_owed() const;
  void preempt_last();
  void free_blocks(Sequence& sequence);

  SchedulerLimits limits_;
  KvPool pool_;
  std::vector<std::unique_ptr<Sequence>> running_;  // by rank, best first
  Queue waiting_;
  std::uint64_t next_number_ = 0;
  std::int64_t preemptions_ = 0;
  std::int64_t prefix_hit_tokens_ = 0;
};

}  // namespace sluice::engine
