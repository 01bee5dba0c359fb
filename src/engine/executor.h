// Executes step plans on one rank: upload, forward, and on the ranks that sample, sample. Knows no requests.
//
// Owned by Engine, or by follow() on other ranks than 0. Takes all its memory when made. One thread. After an exception
// the KV cache may hold part of the step; executing the same plan again writes the same entries.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/batch.h"
#include "engine/limits.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "engine/step_message.h"
#include "model/decoder.h"

namespace sluice::engine {

class Executor {
 public:
  // Of the ranks that share a plan one `samples`; the others leave the logits to it, and their results are empty.
  Executor(const model::Decoder& decoder, const ExecutorLimits& limits, bool samples);
  ~Executor();

  ExpertLoad expert_load() const;  // of this rank; choices where it samples

  // An empty plan is executed too: other ranks may need this one's experts.
  StepResult execute(const GroupStep& step);

 private:
  void forward(const StepPlan& plan, const TensorView& logits, Stream stream);
  void finish(const GroupStep& step, const TensorView& logits, StepResult& result, Stream stream);
  void sample(const TensorView& logits, const std::vector<SampleParams>& params, StepResult& result, Stream stream);
  std::int64_t count_routes(std::int64_t tokens);

  const model::Decoder& decoder_;
  Backend& backend_;
  bool samples_;
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
