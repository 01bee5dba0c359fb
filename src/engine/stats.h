// Counters of an engine since it was made. Plain data, read between steps.
#pragma once

#include <cstdint>

namespace sluice::engine {

struct Stats {
  // A step counts as prefill when it holds any prompt chunk, else as decode.
  std::int64_t prefill_tokens = 0;  // computed in prefill steps, recomputed ones included
  std::int64_t decode_tokens = 0;   // computed in decode steps, one a sequence
  std::int64_t generated_tokens = 0;
  std::int64_t prefill_steps = 0;
  std::int64_t decode_steps = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  // Weights that the steps had to read: everything dense once a step, and each expert that routing chose, counted from
  // the routed ids. KV reads are not included.
  std::int64_t prefill_weight_bytes = 0;
  std::int64_t decode_weight_bytes = 0;

  std::int64_t preemptions = 0;
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t kv_blocks_used = 0;
  std::int64_t kv_blocks_total = 0;
};

}  // namespace sluice::engine
