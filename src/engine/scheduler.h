// Chooses what each step computes: continuous batching with chunked prefill over a fixed number of KV blocks.
//
// Owned by Engine, one thread. Order is first come, first served: running sequences are older than waiting ones. A step
// takes one token of every sequence that is generating, then fills up with prompt chunks, oldest first, then admits
// waiting requests.
//
// Blocks are taken as tokens need them. When they run out, the youngest running sequence gives up its blocks and goes
// back to the head of the queue, to be computed again; so the oldest one always makes progress, and each request
// finishes because submit refuses what would not fit alone. To keep that rare, a request is admitted only when all its
// tokens and those of the running prompts fit into what is free.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/kv_blocks.h"
#include "engine/plan_builder.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"

namespace sluice::engine {

struct SchedulerLimits {
  std::int64_t max_batch_tokens = 512;  // at least max_sequences
  std::int64_t max_sequences = 16;
  std::int64_t max_logit_rows = 64;  // at least max_sequences
  std::int64_t block_tokens = 16;
  std::int64_t blocks = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  void add(std::unique_ptr<Sequence> sequence);  // ids ascend
  // Takes a sequence out, running or waiting, and frees its blocks. nullptr when there is none with this id.
  std::unique_ptr<Sequence> remove(RequestId id);
  // A running sequence, or nullptr.
  Sequence* running(RequestId id);

  // The next step. Empty only when nothing is in work. The caller then adds the tokens of each PlanSequence to
  // `computed`, or leaves the sequences as they are to have the same tokens planned again.
  StepPlan plan();

  std::int64_t running_count() const { return std::ssize(running_); }
  std::int64_t waiting_count() const { return std::ssize(waiting_); }
  std::int64_t waiting_tokens() const;  // prompt tokens
  std::int64_t preemptions() const { return preemptions_; }
  const BlockAllocator& blocks() const { return blocks_; }
  std::int64_t blocks_for(std::int64_t tokens) const {
    return (tokens + limits_.block_tokens - 1) / limits_.block_tokens;
  }

 private:
  struct Draft;
  void plan_running(Draft& draft);
  void admit(Draft& draft);
  void take_chunk(Draft& draft, const Sequence& sequence, std::int64_t tokens);
  std::int64_t chunk_size(const Draft& draft, const Sequence& sequence) const;
  std::int64_t reserve(Sequence& sequence, std::int64_t tokens);
  std::int64_t blocks_owed() const;
  void preempt_youngest();
  void free_blocks(Sequence& sequence);

  SchedulerLimits limits_;
  BlockAllocator blocks_;
  std::vector<std::unique_ptr<Sequence>> running_;  // by age, oldest first
  std::deque<std::unique_ptr<Sequence>> waiting_;   // by age
  std::uint64_t next_number_ = 0;
  std::int64_t preemptions_ = 0;
};

}  // namespace sluice::engine
