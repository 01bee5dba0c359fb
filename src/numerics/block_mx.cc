#include "numerics/block_mx.h"

#include <algorithm>

#include "numerics/e2m1.h"
#include "numerics/e8m0.h"
#include "numerics/fp8.h"

namespace sluice {
namespace {

constexpr int kE2m1MaxExponent = 2;  // 6 = 1.5 * 2^2
constexpr int kE4m3MaxExponent = 8;  // 448 = 1.75 * 2^8

E8m0 block_scale(float amax, MxScale rule, float element_max, int element_max_exponent) {
  if (rule == MxScale::round_up) return to_e8m0_up(amax / element_max);
  const int code = to_e8m0_floor(amax).bits - element_max_exponent;
  return {static_cast<std::uint8_t>(std::max(code, 0))};
}

// 2^(127 - b). The scale is a power of two, so its reciprocal is exact.
float multiplier_of(E8m0 scale) { return 1.0f / to_float(scale); }

E2m1 encode_e2m1(float v, MxTie tie) { return tie == MxTie::even ? to_e2m1(v) : to_e2m1_ties_down(v); }

std::span<const float> block_of(std::span<const float> row, std::size_t block) {
  const std::size_t first = block * kMxBlock;
  return row.subspan(first, std::min<std::size_t>(kMxBlock, row.size() - first));
}

}  // namespace

void quantize_mxfp4_row(std::span<const float> row, std::span<std::uint8_t> codes, std::span<std::uint8_t> scales,
                        MxScale rule, MxTie tie) {
  check_row_spans(BlockFormat::mxfp4, row.size(), codes.size(), scales.size());
  std::fill(codes.begin(), codes.end(), std::uint8_t{0});
  for (std::size_t block = 0; block < scales.size(); ++block) {
    const std::span<const float> values = block_of(row, block);
    if (has_nan(values)) {
      scales[block] = kE8m0Nan;
      continue;
    }
    const E8m0 scale = block_scale(finite_amax(values), rule, kE2m1Max, kE2m1MaxExponent);
    const float multiplier = rule == MxScale::round_up && scale.bits == 0 ? 1.0f : multiplier_of(scale);
    scales[block] = scale.bits;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t c = block * kMxBlock + i;
      const E2m1 code = encode_e2m1(clamp_infinity(values[i]) * multiplier, tie);
      codes[c / 2] |= c % 2 == 0 ? pack_e2m1(code, {}) : pack_e2m1({}, code);
    }
  }
}

void quantize_mxfp8_row(std::span<const float> row, std::span<std::uint8_t> codes, std::span<std::uint8_t> scales,
                        MxScale rule) {
  check_row_spans(BlockFormat::mxfp8, row.size(), codes.size(), scales.size());
  for (std::size_t block = 0; block < scales.size(); ++block) {
    const std::span<const float> values = block_of(row, block);
    const E8m0 scale = block_scale(finite_amax(values), rule, kE4m3Max, kE4m3MaxExponent);
    scales[block] = scale.bits;
    for (std::size_t i = 0; i < values.size(); ++i) {
      codes[block * kMxBlock + i] = to_e4m3(clamp_infinity(values[i]) * multiplier_of(scale)).bits;
    }
  }
}

QuantMatrix quantize_mxfp4(const FloatView& values, MxScale rule, MxTie tie) {
  QuantMatrix out = make_quant_matrix(BlockFormat::mxfp4, values.rows, values.cols);
  for (std::int64_t r = 0; r < values.rows; ++r) {
    quantize_mxfp4_row(values.row(r), out.code_row(r), out.byte_scale_row(r), rule, tie);
  }
  return out;
}

QuantMatrix quantize_mxfp8(const FloatView& values, MxScale rule) {
  QuantMatrix out = make_quant_matrix(BlockFormat::mxfp8, values.rows, values.cols);
  for (std::int64_t r = 0; r < values.rows; ++r) {
    quantize_mxfp8_row(values.row(r), out.code_row(r), out.byte_scale_row(r), rule);
  }
  return out;
}

}  // namespace sluice
