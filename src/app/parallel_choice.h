// What the flags of a launch line say about ranks, with SGLang's names and relations (moe-runner-spec 7.3, 7.4), and
// what that comes to here.
//
// Called by the commands before ranks are started, and by open_model's callers. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moe/parallel.h"

namespace sluice::app {

// Named as on the command line.
struct ParallelRequest {
  std::int32_t tp = 1;
  std::int32_t ep = 1;
  std::int32_t dp = 1;
  bool enable_dp_attention = false;
  std::string a2a = "none";      // --moe-a2a-backend: none, alltoall, or one of SGLang's
  std::int32_t dense_tp = 0;     // --moe-dense-tp-size; 0 = not given
  std::int32_t moe_dp = 1;       // --moe-dp-size
  std::string backend = "auto";  // --moe-runner-backend
  std::string deepep_mode = "auto";
};

struct ParallelChoice {
  ParallelSizes sizes;             // as resolve() returns them
  std::vector<std::string> notes;  // what became of SGLang's names, a line each
};

// Throws Error(usage) for sizes that do not go together and unknown names, Error(unsupported) for what SGLang refuses
// or this build does not have; every message says what would work.
ParallelChoice choose_parallel(const ParallelRequest& request);

// "4 ranks, experts over 2, each in 2 pieces, partial sums reduced"; empty for one rank.
std::string describe(const ParallelSizes& sizes);

}  // namespace sluice::app
