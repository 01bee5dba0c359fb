#include "numerics/block_nvfp4.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>

#include "core/error.h"
#include "numerics/e2m1.h"
#include "numerics/fp8.h"

namespace sluice {
namespace {

constexpr float kMaxEncodeScale = 0x1p126f;

void check_encode_scale(float encode_scale) {
  if (std::isfinite(encode_scale) && encode_scale > 0.0f && std::isfinite(1.0f / encode_scale)) return;
  fail(ErrorCode::bad_input, "cannot quantise to nvfp4 with the encode scale " + std::to_string(encode_scale),
       "448 * 6 / amax: above zero and finite, and so its reciprocal",
       "look at the global scales of this layer in the checkpoint");
}

E4m3 block_scale(float amax, float encode_scale, Nvfp4Math math) {
  if (math == Nvfp4Math::published) return to_e4m3(amax * (encode_scale * (1.0f / kE2m1Max)));
  return to_e4m3(encode_scale * amax / kE2m1Max);
}

// Finite even for the scale 0, so that the zeros of a zero block stay zeros.
float encode_multiplier(E4m3 scale, float encode_scale) {
  return std::min(1.0f / (to_float(scale) * (1.0f / encode_scale)), FLT_MAX);
}

// Codes are written into zeroed bytes, so a column only sets its own nibble.
void set_code(std::span<std::uint8_t> codes, std::size_t column, E2m1 code) {
  codes[column / 2] |= column % 2 == 0 ? pack_e2m1(code, {}) : pack_e2m1({}, code);
}

}  // namespace

float nvfp4_encode_scale(float amax) {
  if (amax == 0.0f) return kMaxEncodeScale;
  return std::min(kE4m3Max * kE2m1Max / amax, kMaxEncodeScale);
}

void quantize_nvfp4_row(std::span<const float> row, float encode_scale, std::span<std::uint8_t> codes,
                        std::span<std::uint8_t> scales, Nvfp4Math math) {
  check_row_spans(BlockFormat::nvfp4, row.size(), codes.size(), scales.size());
  check_encode_scale(encode_scale);
  std::fill(codes.begin(), codes.end(), std::uint8_t{0});
  for (std::size_t block = 0; block < scales.size(); ++block) {
    const std::size_t first = block * kNvfp4Block;
    const std::size_t count = std::min<std::size_t>(kNvfp4Block, row.size() - first);
    const std::span<const float> values = row.subspan(first, count);
    if (has_nan(values)) {
      scales[block] = minifloat::kE4m3Nan;
      continue;
    }
    const E4m3 scale = block_scale(finite_amax(values), encode_scale, math);
    const float multiplier = encode_multiplier(scale, encode_scale);
    scales[block] = scale.bits;
    for (std::size_t c = 0; c < count; ++c) {
      set_code(codes, first + c, to_e2m1(clamp_infinity(values[c]) * multiplier));
    }
  }
}

QuantMatrix quantize_nvfp4(const FloatView& values, std::optional<float> encode_scale, Nvfp4Math math) {
  QuantMatrix out = make_quant_matrix(BlockFormat::nvfp4, values.rows, values.cols);
  const float g = encode_scale ? *encode_scale : nvfp4_encode_scale(finite_amax(values));
  check_encode_scale(g);
  out.tensor_scale = 1.0f / g;
  for (std::int64_t r = 0; r < values.rows; ++r) {
    quantize_nvfp4_row(values.row(r), g, out.code_row(r), out.byte_scale_row(r), math);
  }
  return out;
}

}  // namespace sluice
