// The two 8-bit floats. Pure constexpr functions on bits: thread-safe, no allocation. Called by the block formats,
// the checkpoint decoders and the reference runner.
//
// e4m3 is the "fn" variant of the OCP 8-bit specification: bias 7, largest 448 (0x7E), smallest 2^-9, no infinity, and
// one NaN a sign (0x7F, 0xFF). e5m2 is IEEE-like: bias 15, largest 57344 (0x7B), smallest 2^-16, infinity 0x7C, NaN
// above.
//
// Encoding rounds to nearest, ties to the even code. What happens above the largest finite number is in the name:
//   to_e4m3, to_e5m2              saturate: overflow and infinity give the largest finite number of that sign. This is
//                                 what GPU conversions with "satfinite" do, and the rule of every recipe.
//   to_e4m3_nonsat, to_e5m2_nonsat  overflow and infinity give NaN (e4m3) or infinity (e5m2), as ml-dtypes casts do.
// Overflow means that the rounded result is too large: 464 still is 448 in e4m3 (tie to the even code), 61440 overflows
// in e5m2. NaN always stays NaN and keeps its sign (e4m3: 0x7F, e5m2: 0x7E); -0 stays -0.
#pragma once

#include <cstdint>

#include "numerics/minifloat.h"

namespace sluice {

struct E4m3 {
  std::uint8_t bits = 0;
};
struct E5m2 {
  std::uint8_t bits = 0;
};

inline constexpr float kE4m3Max = 448.0f;
inline constexpr float kE5m2Max = 57344.0f;

namespace minifloat {

inline constexpr std::uint32_t kE4m3MaxCode = 0x7Eu, kE4m3Nan = 0x7Fu;
inline constexpr std::uint32_t kE5m2MaxCode = 0x7Bu, kE5m2Infinity = 0x7Cu, kE5m2Nan = 0x7Eu;

constexpr std::uint8_t signed_code(float v, std::uint32_t code) {
  return static_cast<std::uint8_t>(code | (sign_of(v) ? 0x80u : 0u));
}

constexpr E4m3 encode_e4m3(float v, std::uint32_t overflow_code) {
  if (is_nan(v)) return {signed_code(v, kE4m3Nan)};
  const std::uint32_t code = round_magnitude<3, 7>(v);
  return {signed_code(v, code <= kE4m3MaxCode ? code : overflow_code)};
}

constexpr E5m2 encode_e5m2(float v, std::uint32_t overflow_code) {
  if (is_nan(v)) return {signed_code(v, kE5m2Nan)};
  const std::uint32_t code = round_magnitude<2, 15>(v);
  return {signed_code(v, code <= kE5m2MaxCode ? code : overflow_code)};
}

}  // namespace minifloat

constexpr E4m3 to_e4m3(float v) { return minifloat::encode_e4m3(v, minifloat::kE4m3MaxCode); }
constexpr E4m3 to_e4m3_nonsat(float v) { return minifloat::encode_e4m3(v, minifloat::kE4m3Nan); }
constexpr E5m2 to_e5m2(float v) { return minifloat::encode_e5m2(v, minifloat::kE5m2MaxCode); }
constexpr E5m2 to_e5m2_nonsat(float v) { return minifloat::encode_e5m2(v, minifloat::kE5m2Infinity); }

constexpr float to_float(E4m3 v) {
  const std::uint32_t code = v.bits & 0x7Fu;
  const bool negative = (v.bits & 0x80u) != 0;
  if (code == minifloat::kE4m3Nan) return std::bit_cast<float>(negative ? 0xFFC00000u : 0x7FC00000u);
  return minifloat::with_sign(minifloat::magnitude_value<3, 7>(code), negative);
}

constexpr float to_float(E5m2 v) {
  const std::uint32_t code = v.bits & 0x7Fu;
  const bool negative = (v.bits & 0x80u) != 0;
  if (code < minifloat::kE5m2Infinity) {
    return minifloat::with_sign(minifloat::magnitude_value<2, 15>(code), negative);
  }
  const std::uint32_t sign = negative ? minifloat::kF32SignBit : 0u;
  return std::bit_cast<float>(sign | minifloat::kF32Infinity | (code & 3u) << 21);
}

}  // namespace sluice
