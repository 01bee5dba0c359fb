// How far results are from expected ones, for benches and `verify`. Pure.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace sluice {

// ||a - b|| / ||b|| in float64, of lists of one length; infinity when that is no number, as with a NaN in either.
inline double relative_l2(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    difference += d * d;
    norm += static_cast<double>(b[i]) * b[i];
  }
  if (difference == 0.0) return 0.0;
  const double distance = std::sqrt(difference / norm);
  return std::isfinite(distance) ? distance : std::numeric_limits<double>::infinity();
}

}  // namespace sluice
