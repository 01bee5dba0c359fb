// Looks for values that no weight should have. Reads the whole tensor: for `sluice check`, not for every start.
//
// Pure, thread-safe.
#pragma once

#include <cstdint>

#include "checkpoint/safetensors.h"

namespace sluice::ckpt {

struct NonFiniteCount {
  std::int64_t nan = 0;
  std::int64_t infinite = 0;
  std::int64_t first = -1;  // index of the first such element in the order of the file, -1 = none

  explicit operator bool() const { return first >= 0; }
  bool operator==(const NonFiniteCount&) const = default;
};

// Zero counts for types that have neither NaN nor infinity (integers, e2m1).
NonFiniteCount count_non_finite(const TensorEntry& tensor);

}  // namespace sluice::ckpt
