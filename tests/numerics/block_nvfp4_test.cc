// Hand-computed cases of the NVFP4 quantiser. The comparison with numpy is test_block_formats.py.
#include "numerics/block_nvfp4.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <vector>

#include "core/error.h"

namespace sluice {
namespace {

using Bytes = std::vector<std::uint8_t>;

struct Row {
  Bytes codes;
  Bytes scales;
};

Row quantise(const std::vector<float>& row, float encode_scale, Nvfp4Math math = Nvfp4Math::division) {
  const BlockLayout layout = block_layout(block_format_info(BlockFormat::nvfp4), 1, row.size());
  Row out{Bytes(layout.code_row_bytes, 0xAA), Bytes(layout.scale_cols, 0xAA)};
  quantize_nvfp4_row(row, encode_scale, out.codes, out.scales, math);
  return out;
}

QuantMatrix quantise_matrix(const std::vector<float>& values, std::int64_t cols) {
  return quantize_nvfp4({values.data(), static_cast<std::int64_t>(values.size()) / cols, cols, cols});
}

TEST(Nvfp4, TiesSignsAndNibbleOrder) {
  // amax 6 and g = 1: scale 1, multiplier 1, so the codes are those of the values themselves.
  const Row out = quantise({6, -6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, -0.25f, 0, -0.0f, 1, 2, 3, -4}, 1.0f);
  EXPECT_EQ(out.scales, Bytes{0x38});
  EXPECT_EQ(out.codes, (Bytes{0xF7, 0x20, 0x42, 0x64, 0x86, 0x80, 0x42, 0xE5}));
}

TEST(Nvfp4, ScaleOfTheTensorAndOfTheBlocks) {
  std::vector<float> values(48, 0.0f);
  values[0] = -10.5f;                  // amax of the tensor: g = 2688 / 10.5 = 256
  values[16] = 3.0f;                   // 256 * 3 / 6 = 128
  values[17] = 0.75f;                  // m = 1 / (128 / 256) = 2: 1.5
  values[32] = 6.0f * 17.0f / 256.0f;  // 17, a tie between 16 and 18: 16
  const QuantMatrix matrix = quantise_matrix(values, 48);
  EXPECT_EQ(matrix.tensor_scale, 1.0f / 256.0f);
  EXPECT_EQ(matrix.byte_scales, (Bytes{0x7E, 0x70, 0x58}));  // 448, 128, 16
  EXPECT_EQ(matrix.codes[0], 0x0F);
  EXPECT_EQ(matrix.codes[8], 0x37);
  EXPECT_EQ(matrix.codes[16], 0x07);  // 6.375 in units of the rounded scale saturates at 6
  const std::vector<float> decoded = dequantize(matrix);
  EXPECT_EQ(decoded[0], -10.5f);
  EXPECT_EQ(decoded[16], 3.0f);
  EXPECT_EQ(decoded[17], 0.75f);
}

TEST(Nvfp4, ZeroBlockKeepsSignsOfZero) {
  std::vector<float> row(32, 0.0f);
  row[1] = -0.0f;
  row[20] = 6.0f;
  const Row out = quantise(row, 1.0f);
  EXPECT_EQ(out.scales, (Bytes{0x00, 0x38}));
  EXPECT_EQ(out.codes[0], 0x80);
  EXPECT_EQ(out.codes[1], 0x00);
  EXPECT_EQ(out.codes[10], 0x07);
}

TEST(Nvfp4, EncodeScaleIsBoundedAndNeverInfinite) {
  EXPECT_EQ(nvfp4_encode_scale(2688.0f), 1.0f);
  EXPECT_EQ(nvfp4_encode_scale(0.0f), 0x1p126f);
  EXPECT_EQ(nvfp4_encode_scale(FLT_TRUE_MIN), 0x1p126f);
  EXPECT_GT(nvfp4_encode_scale(FLT_MAX), 0.0f);
  const QuantMatrix zero = quantise_matrix(std::vector<float>(16, 0.0f), 16);
  EXPECT_EQ(zero.tensor_scale, 0x1p-126f);
  EXPECT_EQ(zero.byte_scales, Bytes{0x00});
  EXPECT_EQ(zero.codes, Bytes(8, 0x00));
}

TEST(Nvfp4, StaticEncodeScaleTooLargeSaturatesScaleAndCodes) {
  std::vector<float> row(16, 0.0f);
  row[0] = 6000.0f;  // would want the scale 1000
  row[1] = -448.0f;  // exactly 1 in units of the saturated scale
  const Row out = quantise(row, 1.0f);
  EXPECT_EQ(out.scales, Bytes{0x7E});
  EXPECT_EQ(out.codes[0], 0xA7);
}

TEST(Nvfp4, ScaleThatUnderflows) {
  std::vector<float> row(16, 0.0f);
  row[0] = 6.0f * 0x1p-10f;  // scale 2^-10, a tie between 0 and 2^-9: 0
  row[1] = -1e-6f;
  Row out = quantise(row, 1.0f);
  EXPECT_EQ(out.scales, Bytes{0x00});
  EXPECT_EQ(out.codes[0], 0xF7);  // min(1 / 0, FLT_MAX) saturates every nonzero value; all decode to zero
  EXPECT_EQ(out.codes[1], 0x00);
  row[0] = 6.0f * 1.5f * 0x1p-10f;  // above the tie: 2^-9
  out = quantise(row, 1.0f);
  EXPECT_EQ(out.scales, Bytes{0x01});
  EXPECT_EQ(out.codes[0], 0x86);  // 6 * 0.75 = 4.5 rounds to 4; -0.0005 rounds to -0
}

TEST(Nvfp4, NanPoisonsItsBlockOnly) {
  std::vector<float> row(48, 1.0f);
  row[20] = NAN;
  const Row out = quantise(row, 6.0f);
  EXPECT_EQ(out.scales, (Bytes{0x38, 0x7F, 0x38}));
  for (std::size_t i = 8; i < 16; ++i) EXPECT_EQ(out.codes[i], 0x00);
  EXPECT_EQ(out.codes[0], 0x77);
  std::vector<float> matrix_values = row;
  const std::vector<float> decoded = dequantize(quantise_matrix(matrix_values, 48));
  EXPECT_FALSE(std::isnan(decoded[15]));
  EXPECT_TRUE(std::isnan(decoded[16]) && std::isnan(decoded[31]));
  EXPECT_FALSE(std::isnan(decoded[32]));
}

TEST(Nvfp4, InfinityIsTheLargestFloat) {
  std::vector<float> row(16, 1.0f);
  row[3] = -INFINITY;
  const Row out = quantise(row, 1.0f);
  EXPECT_EQ(out.scales, Bytes{0x7E});
  EXPECT_EQ(out.codes[1], 0xF0);
}

TEST(Nvfp4, RaggedRow) {
  std::vector<float> row(17, 6.0f);
  row[16] = 3.0f;
  const Row out = quantise(row, 1.0f);
  EXPECT_EQ(out.scales, (Bytes{0x38, 0x30}));
  ASSERT_EQ(out.codes.size(), 9u);
  EXPECT_EQ(out.codes[8], 0x07);
}

TEST(Nvfp4, PublishedScaleMultipliesByTheReciprocal) {
  // g * amax / 6 is 17, the tie between 16 and 18, up to the rounding of amax: the two forms fall on different sides of
  // it for some g, and never further apart.
  std::vector<float> row(16, 0.0f);
  int differ = 0;
  for (int i = 0; i < 4096; ++i) {
    const float g = 1.0f + static_cast<float>(i) * 0x1p-12f;
    row[0] = 102.0f / g;
    const std::uint8_t exact = quantise(row, g).scales[0];
    const std::uint8_t published = quantise(row, g, Nvfp4Math::published).scales[0];
    EXPECT_LE(std::abs(exact - published), 1);
    differ += exact != published;
  }
  EXPECT_GT(differ, 0);
}

TEST(Nvfp4, BadArgumentsAreRefused) {
  std::vector<float> row(16, 1.0f);
  Bytes codes(8), scales(1);
  for (const float g : {0.0f, -1.0f, NAN, INFINITY, 1e-40f}) {
    EXPECT_THROW(quantize_nvfp4_row(row, g, codes, scales), Error) << g;
  }
  Bytes short_codes(7);
  EXPECT_THROW(quantize_nvfp4_row(row, 1.0f, short_codes, scales), Error);
}

}  // namespace
}  // namespace sluice
