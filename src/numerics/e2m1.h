// e2m1, the 4-bit float of NVFP4 and MXFP4. Pure constexpr functions on bits: thread-safe, no allocation.
//
// Codes 0..7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign; there is no infinity and no NaN. Two codes share a
// byte: the even column is in the low nibble, the odd column in the high one (ModelOpt, compressed-tensors and GPT-OSS
// files alike).
#pragma once

#include <cstdint>
#include <initializer_list>

#include "numerics/minifloat.h"

namespace sluice {

struct E2m1 {
  std::uint8_t bits = 0;  // 0..15
};

inline constexpr float kE2m1Max = 6.0f;

constexpr float to_float(E2m1 v) {
  return minifloat::with_sign(minifloat::magnitude_value<1, 1>(v.bits & 7u), (v.bits & 8u) != 0);
}

// Round to nearest, ties to the even code (0.25 > 0, 0.75 > 1, 1.25 > 1, 1.75 > 2, 2.5 > 2, 3.5 > 4, 5 > 4), saturating
// at 6; infinity gives 6 of its sign; -0 and negative values that round to zero give -0 (code 8). NaN, which has no
// code, gives +6 as in the GPU conversion; a block quantiser must mark such a block in its scale instead.
// ml-dtypes agrees except for NaN, which it maps to a zero.
constexpr E2m1 to_e2m1(float v) {
  if (minifloat::is_nan(v)) return {7};
  const std::uint32_t code = minifloat::round_magnitude<1, 1>(v);
  return {static_cast<std::uint8_t>((code < 7u ? code : 7u) | (minifloat::sign_of(v) ? 8u : 0u))};
}

// As to_e2m1, but a tie goes to the lower magnitude (0.75 > 0.5, 1.75 > 1.5, 3.5 > 3 differ): the torch quantiser of
// FlashInfer's Hopper tests, which searches these midpoints as open upper ends of intervals.
constexpr E2m1 to_e2m1_ties_down(float v) {
  if (minifloat::is_nan(v)) return {7};
  const float magnitude = minifloat::sign_of(v) ? -v : v;
  std::uint8_t code = 0;
  for (const float midpoint : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f}) {
    if (magnitude > midpoint) ++code;
  }
  return {static_cast<std::uint8_t>(code | (minifloat::sign_of(v) ? 8u : 0u))};
}

constexpr std::uint8_t pack_e2m1(E2m1 even_column, E2m1 odd_column) {
  return static_cast<std::uint8_t>(even_column.bits | odd_column.bits << 4);
}

// The code of `column` from the byte that holds it, which is byte column / 2 of the row.
constexpr E2m1 unpack_e2m1(std::uint8_t byte, std::int64_t column) {
  return {static_cast<std::uint8_t>(column % 2 == 0 ? byte & 15u : byte >> 4)};
}

}  // namespace sluice
