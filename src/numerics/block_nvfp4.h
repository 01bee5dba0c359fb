// NVFP4: e2m1 codes, an e4m3 scale per 16 columns, a float32 scale per tensor. Reference quantiser, slow and obvious.
// Called by the exporter, the W4A4 reference recipes and tests. Pure functions: thread-safe.
//
// Formulas of FlashInfer's NVFP4 quantiser with fast math off; g is the encode scale, all arithmetic float32:
//   g            = 448 * 6 / amax(tensor), at most 2^126; also 2^126 when the tensor is zero
//   tensor_scale = 1 / g                           the decode multiplier; so never zero, subnormal or infinite
//   s            = e4m3(g * amax16 / 6), saturating; the product first, then the division. 0 when amax16 is 0
//   m            = min(1 / (s * (1 / g)), FLT_MAX); the published 0 for a zero block gives the same codes
//   code         = e2m1(value * m), ties to the even code, saturating at 6
//   value        = code * s * tensor_scale
// A static g that is too large for a block saturates s at 448 and then the codes at 6. One so small that s rounds to 0
// makes the block decode to 0 while its nonzero values keep codes of up to +-6; that is what the formula above gives,
// and the reason for its min(). FlashInfer writes s as amax16 * (g * float32(1 / 6)), which may round
// differently; `Nvfp4Math::published` reproduces that. Neither has been compared with the bits of a Blackwell card.
// amax16 is taken over the values as given: for a bf16 activation pass values already rounded to bf16.
// NaN, infinity: see quant_matrix.h; a block with a NaN has scale 0x7F and zero codes, the other blocks are unaffected.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "numerics/quant_matrix.h"

namespace sluice {

inline constexpr std::int64_t kNvfp4Block = 16;

enum class Nvfp4Math : std::uint8_t {
  division,   // s from (g * amax16) / 6
  published,  // s from amax16 * (g * float32(1 / 6))
};

// g of a tensor with this amax.
float nvfp4_encode_scale(float amax);

// One row: codes [ceil(cols / 2)] packed, scales [ceil(cols / 16)] e4m3. `encode_scale` and its reciprocal must be
// finite and above zero. With an odd number of columns the last high nibble is 0.
void quantize_nvfp4_row(std::span<const float> row, float encode_scale, std::span<std::uint8_t> codes,
                        std::span<std::uint8_t> scales, Nvfp4Math math = Nvfp4Math::division);

// A matrix; without `encode_scale` it is taken from the matrix itself.
QuantMatrix quantize_nvfp4(const FloatView& values, std::optional<float> encode_scale = std::nullopt,
                           Nvfp4Math math = Nvfp4Math::division);

}  // namespace sluice
