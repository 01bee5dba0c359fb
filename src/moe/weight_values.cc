#include "moe/weight_values.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace sluice {

std::int64_t first_non_finite_row(const QuantTensor& weight) {
  std::vector<float> row(static_cast<std::size_t>(weight.codes.cols));
  for (std::int64_t n = 0; n < weight.codes.rows; ++n) {
    decode_row(weight, n, row.data());
    if (!std::all_of(row.begin(), row.end(), [](float v) { return std::isfinite(v); })) return n;
  }
  return -1;
}

}  // namespace sluice
