// Scales as numbers, whatever float type a file has them in. Pure functions for the units that read scales.
//
// Called by WeightReader and ScaleChecks.
#pragma once

#include <cstdint>
#include <cstring>

#include "checkpoint/safetensors.h"
#include "numerics/bf16.h"
#include "numerics/fp16.h"

namespace sluice::ckpt {

inline std::int64_t elements_of(const TensorEntry& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t extent : tensor.shape) count *= extent;
  return count;
}

// Element i of bf16, f16 or f32, aligned or not.
inline float float_at(const std::byte* data, DType type, std::int64_t i) {
  const auto load = [&](auto stored) {
    std::memcpy(&stored, data + static_cast<std::size_t>(i) * sizeof stored, sizeof stored);
    return stored;
  };
  if (type == DType::bf16) return to_float(load(Bf16{}));
  if (type == DType::f16) return to_float(load(Fp16{}));
  return load(0.0f);
}

}  // namespace sluice::ckpt
