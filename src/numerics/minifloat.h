// Rounding shared by the narrow formats (fp16, e4m3, e5m2, e2m1): sign, exponent, mantissa, gradual underflow.
//
// A magnitude code is the format's bit pattern without its sign. Codes of such a format are ordered like their values,
// and the code after the largest finite one is where an unbounded format would go on; so rounding is done here without
// an upper limit, and each format applies its own overflow rule to the code it gets. Pure constexpr functions.
#pragma once

#include <bit>
#include <cstdint>

namespace sluice::minifloat {

inline constexpr std::uint32_t kF32SignBit = 0x80000000u;
inline constexpr std::uint32_t kF32Infinity = 0x7F800000u;

constexpr std::uint32_t magnitude_bits(float v) { return std::bit_cast<std::uint32_t>(v) & ~kF32SignBit; }
constexpr bool sign_of(float v) { return (std::bit_cast<std::uint32_t>(v) & kF32SignBit) != 0; }
constexpr bool is_nan(float v) { return magnitude_bits(v) > kF32Infinity; }
constexpr float with_sign(float magnitude, bool negative) { return negative ? -magnitude : magnitude; }

// 2^exponent for the exponents of normal float32 numbers, -126..127.
constexpr float exp2_normal(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// v / 2^shift, rounded to the nearest integer, ties to the even one. 1 <= shift <= 31 and v < 2^31.
constexpr std::uint32_t shift_right_to_even(std::uint32_t v, int shift) {
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t odd = v >> shift & 1u;
  return (v + half - 1u + odd) >> shift;
}

// Magnitude code of |v|, round to nearest, ties to the even code; v is not NaN. Infinity gives a code above all finite.
template <int kMantissaBits, int kBias>
constexpr std::uint32_t round_magnitude(float v) {
  static_assert(kBias < 127, "float32 must reach below the subnormals of the format");
  const std::uint32_t bits = magnitude_bits(v);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  const int drop = 23 - kMantissaBits;  // mantissa bits that a normal number loses
  if (exponent >= 1 - kBias) {
    return shift_right_to_even(bits - (static_cast<std::uint32_t>(127 - kBias) << 23), drop);
  }
  // Subnormal of the format: count its smallest steps of 2^(1 - kBias - kMantissaBits). From 25 dropped bits on, even
  // the largest significand is less than half a step. Float32 subnormals end there too.
  const int shift = drop + (1 - kBias - exponent);
  if (shift > 24) return 0;
  return shift_right_to_even((bits & 0x7FFFFFu) | 0x800000u, shift);
}

// Value of a finite magnitude code; exact in float32.
template <int kMantissaBits, int kBias>
constexpr float magnitude_value(std::uint32_t code) {
  const int exponent = static_cast<int>(code >> kMantissaBits);
  const std::uint32_t mantissa = code & ((1u << kMantissaBits) - 1u);
  if (exponent == 0) return static_cast<float>(mantissa) * exp2_normal(1 - kBias - kMantissaBits);
  const std::uint32_t f32_exponent = static_cast<std::uint32_t>(exponent - kBias + 127);
  return std::bit_cast<float>(f32_exponent << 23 | mantissa << (23 - kMantissaBits));
}

}  // namespace sluice::minifloat
