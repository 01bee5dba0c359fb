// bfloat16: the upper half of an IEEE float32. Pure constexpr functions on bits: thread-safe, no allocation.
// Called by every layer that stores activations or weights in bf16.
#pragma once

#include <bit>
#include <cstdint>

namespace sluice {

struct Bf16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(Bf16 v) { return std::bit_cast<float>(static_cast<std::uint32_t>(v.bits) << 16); }

// Round to nearest, ties to even; overflow goes to infinity; NaN becomes a quiet NaN of the same sign. Subnormals are
// kept.
constexpr Bf16 to_bf16(float v) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | 0x7FC0u)};
  const std::uint32_t lsb = bits >> 16 & 1u;
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + lsb) >> 16)};
}

// The float32 that survives storing as bf16.
constexpr float round_to_bf16(float v) { return to_float(to_bf16(v)); }

}  // namespace sluice
