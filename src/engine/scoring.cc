#include "engine/scoring.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::engine {

float log_probability(std::span<const float> logits, std::int32_t token) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float x : logits) {
    if (std::isnan(x)) return x;
    largest = std::max(largest, x);
  }
  if (!std::isfinite(largest)) return std::numeric_limits<float>::quiet_NaN();
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - largest);
  return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(token)]) - largest - std::log(sum));
}

}  // namespace sluice::engine
