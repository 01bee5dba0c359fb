// Hand-computed cases of the FP8 quantisers. The comparison with numpy is test_block_formats.py.
#include "numerics/block_fp8.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <vector>

#include "core/error.h"

namespace sluice {
namespace {

FloatView view_of(const std::vector<float>& values, std::int64_t cols) {
  return {values.data(), static_cast<std::int64_t>(values.size()) / cols, cols, cols};
}

TEST(Fp8Group, ScaleIsAmaxOver448AndTiesGoToEven) {
  std::vector<float> row(130, 0.0f);
  row[0] = -448.0f;   // scale 1
  row[1] = 1.0625f;   // tie: 1
  row[2] = 1.1875f;   // tie: 1.25
  row[127] = 17.0f;   // tie between 16 and 18: 16
  row[128] = 896.0f;  // second, ragged group: scale 2
  row[129] = 2.125f;  // 1.0625 after scaling
  std::vector<std::uint8_t> codes(130);
  std::vector<float> scales(2);
  quantize_fp8_group_row(row, codes, scales);
  EXPECT_EQ(scales, (std::vector<float>{1.0f, 2.0f}));
  EXPECT_EQ(codes[0], 0xFE);
  EXPECT_EQ(codes[1], 0x38);
  EXPECT_EQ(codes[2], 0x3A);
  EXPECT_EQ(codes[127], 0x58);
  EXPECT_EQ(codes[128], 0x7E);
  EXPECT_EQ(codes[129], 0x38);
}

TEST(Fp8Group, ZeroAndTinyGroupsUseTheFloor) {
  std::vector<float> row(256, 0.0f);
  row[7] = -0.0f;
  row[200] = 1e-11f;
  const QuantMatrix matrix = quantize_fp8_groups(view_of(row, 256));
  EXPECT_EQ(matrix.float_scales, (std::vector<float>{1e-10f / 448.0f, 1e-10f / 448.0f}));
  EXPECT_EQ(matrix.codes[0], 0x00);
  EXPECT_EQ(matrix.codes[7], 0x80);
  EXPECT_EQ(matrix.codes[200], 0x63);  // 44.8, nearest of 44 and 48 is 44 = 1.375 * 2^5
}

TEST(Fp8Block, RaggedEdgesHaveTheirOwnScales) {
  const std::int64_t rows = 130, cols = 131;
  std::vector<float> values(rows * cols, 1.0f);
  values[3 * cols + 5] = 448.0f;      // block (0, 0)
  values[2 * cols + 130] = -896.0f;   // block (0, 1), 3 columns wide
  values[129 * cols + 0] = 1792.0f;   // block (1, 0), 2 rows high
  values[128 * cols + 129] = 224.0f;  // block (1, 1)
  const QuantMatrix matrix = quantize_fp8_blocks(view_of(values, cols));
  EXPECT_EQ(matrix.float_scales, (std::vector<float>{1.0f, 2.0f, 4.0f, 0.5f}));
  EXPECT_EQ(matrix.codes[0], 0x38);                 // 1 / 1
  EXPECT_EQ(matrix.codes[128], 0x30);               // 1 / 2
  EXPECT_EQ(matrix.codes[128 * cols], 0x28);        // 1 / 4
  EXPECT_EQ(matrix.codes[129 * cols + 130], 0x40);  // 1 / 0.5
  EXPECT_EQ(dequantize(matrix), values);
}

TEST(Fp8Block, ZeroBlockUsesTheWeightFloor) {
  const std::vector<float> values(4, 0.0f);
  const QuantMatrix matrix = quantize_fp8_blocks(view_of(values, 2));
  EXPECT_EQ(matrix.float_scales, (std::vector<float>{1e-4f / 448.0f}));
  EXPECT_EQ(matrix.codes, (std::vector<std::uint8_t>{0, 0, 0, 0}));
}

TEST(Fp8Row, EveryRowHasItsScaleAndAZeroRowHasOne) {
  const std::vector<float> values = {448.0f, 1.0f, 0.0f, 0.0f, -44.8f, 0.1f};
  const QuantMatrix matrix = quantize_fp8_rows(view_of(values, 2));
  EXPECT_EQ(matrix.float_scales, (std::vector<float>{1.0f, 1.0f, 44.8f / 448.0f}));
  EXPECT_EQ(matrix.codes, (std::vector<std::uint8_t>{0x7E, 0x38, 0x00, 0x00, 0xFE, 0x38}));
}

TEST(Fp8Tensor, OneScale) {
  const std::vector<float> values = {1.0f, -2.0f, 896.0f, 4.0f};
  const QuantMatrix matrix = quantize_fp8_tensor(view_of(values, 2));
  EXPECT_EQ(matrix.tensor_scale, 2.0f);
  EXPECT_TRUE(matrix.float_scales.empty());
  EXPECT_EQ(matrix.codes, (std::vector<std::uint8_t>{0x30, 0xB8, 0x7E, 0x40}));
}

TEST(Fp8Tensor, ScaleIsNeverSubnormalOrZero) {
  EXPECT_EQ(fp8_scale(0.0f), 1.0f);
  EXPECT_EQ(fp8_scale(1e-40f), FLT_MIN);
  EXPECT_EQ(fp8_scale(448.0f), 1.0f);
}

TEST(Fp8, StaticScaleSaturates) {
  const std::vector<float> row = {1000.0f, -1000.0f, 0.5f};
  std::vector<std::uint8_t> codes(3);
  quantize_fp8_row_with_scale(row, 1.0f, codes);
  EXPECT_EQ(codes, (std::vector<std::uint8_t>{0x7E, 0xFE, 0x30}));
}

TEST(Fp8, NanStaysAndInfinityIsTheLargestFloat) {
  const std::vector<float> values = {NAN, 448.0f, -NAN, 1.0f};
  const QuantMatrix with_nan = quantize_fp8_tensor(view_of(values, 4));
  EXPECT_EQ(with_nan.tensor_scale, 1.0f);
  EXPECT_EQ(with_nan.codes, (std::vector<std::uint8_t>{0x7F, 0x7E, 0xFF, 0x38}));
  const std::vector<float> infinite = {-INFINITY, 1.0f};
  const QuantMatrix matrix = quantize_fp8_tensor(view_of(infinite, 2));
  EXPECT_EQ(matrix.tensor_scale, FLT_MAX / 448.0f);
  EXPECT_EQ(matrix.codes, (std::vector<std::uint8_t>{0xFE, 0x00}));
}

TEST(Fp8, BadScalesAreRefused) {
  const std::vector<float> row = {1.0f};
  std::vector<std::uint8_t> codes(1);
  for (const float scale : {0.0f, -1.0f, NAN, INFINITY}) {
    EXPECT_THROW(quantize_fp8_row_with_scale(row, scale, codes), Error) << scale;
  }
}

}  // namespace
}  // namespace sluice
