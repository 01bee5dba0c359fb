// Counters and gauges of an engine since it was made. Plain data: read or copied between steps by the engine's thread,
// then free to travel.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace sluice::engine {

// Where the time of steps went, in seconds. Their sum is the time spent in Engine::step.
struct StepTime {
  double schedule = 0;  // choosing what to compute, blocks, the plan
  double execute = 0;   // upload and forward pass; on a device that runs behind, its wait is in `sample`
  double sample = 0;    // penalties, choosing tokens, log-probabilities, bringing them to the host
  double output = 0;    // the rest: counting experts, applying results, prefix cache, events
  double total() const { return schedule + execute + sample + output; }
};

struct EngineStats {
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
  StepTime time;

  // Requests since the start. submitted = finished + cancelled + failed + running + waiting.
  std::int64_t submitted = 0;
  std::int64_t finished = 0;  // stop or length
  std::int64_t failed = 0;
  std::int64_t cancelled = 0;
  std::int64_t refused = 0;  // by try_submit, not in `submitted`
  std::int64_t preemptions = 0;
  std::int64_t prompt_tokens = 0;      // of all requests scheduled for the first time
  std::int64_t prefix_hit_tokens = 0;  // of these, the ones that the prefix cache had

  // Now.
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t waiting_tokens = 0;    // prompt tokens of waiting requests
  std::int64_t kv_blocks_used = 0;    // held by running requests
  std::int64_t kv_blocks_cached = 0;  // held by the prefix cache alone: free when wanted
  std::int64_t kv_blocks_total = 0;
  std::int64_t kv_block_tokens = 0;
};

// Rows that one rank's experts have computed. Ranks that hold pieces of the same experts count the same rows.
struct RankLoad {
  std::int32_t first_slot = 0;     // of the placement: which slots these are
  std::vector<std::int64_t> rows;  // [slots of the rank]
  std::int64_t total() const { return std::accumulate(rows.begin(), rows.end(), std::int64_t{0}); }
};

// How often routing chose each expert since the start; ids as the router has them, fused shared experts last.
struct LayerLoad {
  std::int32_t layer = 0;               // of the model, counted from 0
  std::vector<std::int64_t> choices;    // [experts] (token, slot) pairs, of all groups
  std::vector<std::int32_t> expert_of;  // [slots of the placement] the expert whose weights a slot holds
  std::vector<RankLoad> ranks;          // [ranks]; this and expert_of are empty where there is one
};
struct ExpertLoad {
  std::int64_t tokens = 0;        // that went through the layers
  std::vector<LayerLoad> layers;  // the MoE layers
};

}  // namespace sluice::engine
