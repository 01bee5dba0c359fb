// A batch of random_layer.h in device memory, and distances between results.
#pragma once

#include <cmath>
#include <vector>

#include "cuda/oracle.h"
#include "gpu/device_array.h"
#include "moe/random_layer.h"

namespace sluice::gpu_tests {

class DeviceBatch {
 public:
  explicit DeviceBatch(const sluice::testing::Batch& batch)
      : tokens(batch.tokens),
        width(batch.width),
        top_k(batch.top_k),
        hidden(batch.hidden),
        ids(batch.ids),
        weights(batch.weights) {}

  ConstTensorView view() const {
    return dense_view(static_cast<const void*>(hidden.data()), DType::bf16, tokens, width);
  }
  cuda::OracleBatch oracle_batch(std::int32_t first_slot = 0) const {
    return {view(), ids.data(), weights.data(), top_k, first_slot};
  }

  std::int64_t tokens, width;
  std::int32_t top_k;
  DeviceArray<std::byte> hidden;
  DeviceArray<SlotId> ids;
  DeviceArray<float> weights;
};

// ||a - b|| / ||b||; infinity when that is no number, as with a NaN in either.
inline double relative_l2(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  if (difference == 0.0 && a.size() == b.size()) return 0.0;
  const double distance = std::sqrt(difference / norm);
  return std::isfinite(distance) && a.size() == b.size() ? distance : INFINITY;
}

}  // namespace sluice::gpu_tests
