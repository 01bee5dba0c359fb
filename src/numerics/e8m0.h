// e8m0, the power-of-two scale of the MX formats. Pure constexpr functions on bits: thread-safe, no allocation.
//
// Code b is 2^(b - 127); 255 is NaN; there is no zero, no sign and no infinity, and code 0 is 2^-127 (a float32
// subnormal). Two encoders, because both rules are in use and mostly differ by one exponent: never mix them.
//   to_e8m0_up     the smallest power of two >= v   (FlashInfer's quantisers)
//   to_e8m0_floor  the largest power of two <= v    (OCP Microscaling specification 1.0)
// Both: zero and anything below 2^-127 give 0, infinity saturates at 254, NaN and negative numbers give 255.
// ml-dtypes casts round to the nearest power and give NaN for zero and infinity.
#pragma once

#include <cstdint>

#include "numerics/minifloat.h"

namespace sluice {

struct E8m0 {
  std::uint8_t bits = 0;
};

inline constexpr std::uint8_t kE8m0Nan = 255;
inline constexpr std::uint8_t kE8m0Max = 254;

constexpr float to_float(E8m0 v) {
  if (v.bits == kE8m0Nan) return std::bit_cast<float>(0x7FC00000u);
  if (v.bits == 0) return std::bit_cast<float>(0x00400000u);
  return minifloat::exp2_normal(v.bits - 127);
}

constexpr E8m0 to_e8m0_floor(float v) {
  if (minifloat::is_nan(v) || v < 0.0f) return {kE8m0Nan};
  // For normal numbers the code is the float32 exponent field; float32 subnormals from 2^-127 on have field 0 as well.
  const std::uint32_t field = minifloat::magnitude_bits(v) >> 23;
  return {static_cast<std::uint8_t>(field < kE8m0Max ? field : kE8m0Max)};
}

constexpr E8m0 to_e8m0_up(float v) {
  const E8m0 below = to_e8m0_floor(v);
  if (below.bits >= kE8m0Max) return below;
  return {static_cast<std::uint8_t>(below.bits + (v > to_float(below) ? 1 : 0))};
}

}  // namespace sluice
