// IEEE binary16: 5 exponent bits, 10 mantissa bits. Pure constexpr functions on bits: thread-safe, no allocation.
// Called where checkpoints or activations are stored in fp16.
#pragma once

#include <cstdint>

#include "numerics/minifloat.h"

namespace sluice {

struct Fp16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(Fp16 v) {
  const std::uint32_t code = v.bits & 0x7FFFu;
  const bool negative = (v.bits & 0x8000u) != 0;
  if (code < 0x7C00u) return minifloat::with_sign(minifloat::magnitude_value<10, 15>(code), negative);
  const std::uint32_t sign = negative ? minifloat::kF32SignBit : 0u;
  return std::bit_cast<float>(sign | minifloat::kF32Infinity | (code & 0x3FFu) << 13);
}

// Round to nearest, ties to even; from 65520 on the result is infinity; NaN becomes the quiet NaN 0x7E00 with the same
// sign (its payload is dropped, unlike in numpy). Subnormals are kept.
constexpr Fp16 to_fp16(float v) {
  const std::uint16_t sign = minifloat::sign_of(v) ? 0x8000u : 0u;
  if (minifloat::is_nan(v)) return {static_cast<std::uint16_t>(sign | 0x7E00u)};
  const std::uint32_t code = minifloat::round_magnitude<10, 15>(v);
  return {static_cast<std::uint16_t>(sign | (code < 0x7C00u ? code : 0x7C00u))};
}

// The float32 that survives storing as fp16.
constexpr float round_to_fp16(float v) { return to_float(to_fp16(v)); }

}  // namespace sluice
