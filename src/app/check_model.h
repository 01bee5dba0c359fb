// Everything that can be said of a checkpoint without reading its weights: `sluice check`.
//
// Called by cli/check.cc and tests; one thread. Throws Error when there is no checkpoint to report on (no folder, no
// config.json, a damaged shard, an unknown architecture); all other faults are in the report.
#pragma once

#include <string>

#include "app/memory_plan.h"
#include "checkpoint/check.h"

namespace sluice::app {

struct CheckModelOptions {
  std::string path;
  std::string scale_policy = "strict";  // as ckpt::ScalePolicy::parse reads it
  bool block_scales = false;            // also read every block scale
  bool weights = false;                 // both, and every other tensor, for NaN and infinity
};

struct ModelCheck {
  std::string architecture;
  ckpt::CheckReport report;
  MemoryPlan memory;  // on one rank
};

ModelCheck check_model(const CheckModelOptions& options);

}  // namespace sluice::app
