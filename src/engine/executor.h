// Executes step plans on one rank: upload, forward, sample. Knows no requests.
//
// Owned by Engine. Takes all its memory when made. One thread. After an exception the KV cache may hold part of the
// step; executing the same plan again writes the same entries.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/batch.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "engine/step_plan.h"
#include "model/decoder.h"

namespace sluice::engine {

// One entry for each row of logits of the plan, sampled ones first.
struct StepResult {
  std::vector<std::int32_t> tokens;      // [rows] -1 where the logits have a NaN or nothing finite
  std::vector<float> logprobs;           // [rows] of the token, at temperature 1
  std::int64_t top_width = 0;            // the most that any row asked for
  std::vector<std::int32_t> top_tokens;  // [rows, top_width], -1 beyond what the row asked for
  std::vector<float> top_logprobs;       // [rows, top_width]
  std::vector<float> logits;             // [rows asked for, V], in the order asked
  std::int64_t weight_bytes = 0;         // that the step had to read: all dense weights, and the chosen experts
  double execute_seconds = 0;
  double sample_seconds = 0;

  // The most probable tokens of a row.
  std::vector<TokenLogprob> top(std::int64_t row) const;
};

class Executor {
 public:
  Executor(const model::Decoder& decoder, const BatchLimits& limits, std::int64_t context, std::int64_t kv_blocks);
  ~Executor();

  // `params`: one for each row of logits. `copy_rows`: rows of the logits to bring to the host.
  ExpertLoad expert_load() const { return load_; }

  StepResult execute(const StepPlan& plan, const std::vector<SampleParams>& params,
                     const std::vector<std::int32_t>& copy_rows);

 private:
  void forward(const StepPlan& plan, const TensorView& logits, Stream stream);
  void sample(const TensorView& logits, const std::vector<SampleParams>& params, StepResult& result, Stream stream);
  std::int64_t count_routes(std::int64_t tokens);

  const model::Decoder& decoder_;
  Backend& backend_;
  BatchBuffers batch_;
  model::KvState kv_;
  Buffer workspace_memory_;
  Workspace workspace_;
  Buffer logits_;                     // [logit rows, V] f32
  Buffer tokens_;                     // [logit rows] i32
  Buffer logprobs_;                   // [logit rows] f32
  Buffer top_tokens_;                 // [logit rows, kMostTop] i32
  Buffer top_logprobs_;               // [logit rows, kMostTop] f32
  std::vector<std::int32_t> routes_;  // [moe layers, T, k], host
  ExpertLoad load_;
  std::vector<std::int64_t> step_choices_;  // [experts] of one layer and step
  std::int64_t max_tokens_;
  std::int32_t max_slots_;  // largest k of all layers
};

}  // namespace sluice::engine
