// Runs one sequence at a time through a decoder, from its beginning, and hands out what generation does not need: the
// logits of every position, the routes, the intermediates. For calibration and for comparing models.
//
// Owned by one caller, one thread; the decoder outlives it. Takes its memory when made.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/batch.h"
#include "model/decoder.h"

namespace sluice::app {

class SequenceRunner {
 public:
  // For sequences of up to `max_tokens`, a multiple of 16.
  SequenceRunner(const model::Decoder& decoder, std::int64_t max_tokens, bool with_logits);

  // [T, V] logits of every position, when made with them; valid until the next run. `stages` and `routes` may be
  // nullptr; routes are complete on return.
  const std::vector<float>& run(const std::vector<std::int32_t>& ids, StageSink* stages, model::RouteLog* routes);

  std::int64_t max_tokens() const { return max_tokens_; }

 private:
  const model::Decoder& decoder_;
  Backend& backend_;
  std::int64_t max_tokens_;
  bool with_logits_;
  engine::BatchBuffers batch_;
  model::KvState kv_;
  Buffer memory_;
  Workspace workspace_;
  Buffer device_logits_;       // [max_tokens, V] f32
  std::vector<float> logits_;  // [T, V]
};

}  // namespace sluice::app
