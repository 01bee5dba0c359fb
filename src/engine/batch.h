// The integers of a StepPlan in device memory: what Decoder::forward reads.
//
// Sized once for the largest step, one copy a step. Owned by the Executor; one thread. The view of a plan is valid
// until the next upload.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/step_plan.h"
#include "moe/backend.h"

namespace sluice::engine {

struct BatchLimits {
  std::int64_t tokens = 0;
  std::int64_t sequences = 0;
  std::int64_t blocks = 0;  // of one sequence
  std::int64_t logit_rows = 0;
};

struct DeviceBatch {
  BatchView view;
  const std::int32_t* logit_rows = nullptr;  // [n]
};

class BatchBuffers {
 public:
  BatchBuffers(Backend& backend, const BatchLimits& limits);

  // Throws Error(usage) when the plan is larger than the limits.
  DeviceBatch upload(const StepPlan& plan, Stream stream);

 private:
  const std::int32_t* append(const std::vector<std::int32_t>& list);

  Backend& backend_;
  BatchLimits limits_;
  Buffer device_;
  std::vector<std::int32_t> staging_;  // must not move or change until the copy is done
};

}  // namespace sluice::engine
