// The MX formats: an e8m0 scale per 32 columns over e2m1 (MXFP4) or e4m3 (MXFP8) codes, no tensor scale. Reference
// quantisers, slow and obvious. Called by the exporter, the MX reference recipes and tests. Pure functions:
// thread-safe.
//
// Block scale 2^(b - 127); P is 6 for MXFP4 and 448 for MXFP8; the division is float32:
//   round_up   b from amax / P rounded up to a power of two; so no finite value saturates
//                                                              (FlashInfer's device and torch quantisers)
//   ocp_floor  b - 127 = floor(log2(amax)) - floor(log2(P)), that is - 2 or - 8; values between P and the next power
//              of two saturate                                 (OCP Microscaling specification 1.0, section 6.3)
// b stays within 0..254, and is 0 for a zero block. The two rules differ by one exponent for most blocks.
//
// code = element(value * 2^(127 - b)), a multiplication that is exact for everything that survives the rounding. One
// exception is FlashInfer's: MXFP4 with round_up takes the multiplier 1 for b = 0, so blocks whose amax is at most
// 6 * 2^-127 get zero codes. e2m1 ties go to the even code, or by MxTie::lower to the lower magnitude; round_up with
// MxTie::lower is the torch quantiser of FlashInfer's Hopper tests. e4m3 always ties to even and saturates.
// NaN, infinity: see quant_matrix.h; an MXFP4 block with a NaN has scale 255 and zero codes, in MXFP8 the element is
// NaN.
#pragma once

#include <cstdint>
#include <span>

#include "numerics/quant_matrix.h"

namespace sluice {

inline constexpr std::int64_t kMxBlock = 32;

enum class MxScale : std::uint8_t { round_up, ocp_floor };
enum class MxTie : std::uint8_t { even, lower };

// One row: codes [ceil(cols / 2)] packed, scales [ceil(cols / 32)] e8m0. With an odd number of columns the last high
// nibble is 0.
void quantize_mxfp4_row(std::span<const float> row, std::span<std::uint8_t> codes, std::span<std::uint8_t> scales,
                        MxScale rule = MxScale::round_up, MxTie tie = MxTie::even);

// One row: codes [cols] e4m3, scales [ceil(cols / 32)] e8m0.
void quantize_mxfp8_row(std::span<const float> row, std::span<std::uint8_t> codes, std::span<std::uint8_t> scales,
                        MxScale rule = MxScale::round_up);

QuantMatrix quantize_mxfp4(const FloatView& values, MxScale rule = MxScale::round_up, MxTie tie = MxTie::even);
QuantMatrix quantize_mxfp8(const FloatView& values, MxScale rule = MxScale::round_up);

}  // namespace sluice
