// Questions about the values of a weight. Called at load time. Pure functions, thread-safe.
#pragma once

#include <cstdint>

#include "moe/weights.h"

namespace sluice {

// The first row that holds NaN or infinity, -1 when all values are finite. Decodes everything: for small tensors.
std::int64_t first_non_finite_row(const QuantTensor& weight);

}  // namespace sluice
