// The table of formats, storage sizes, and the decoder on matrices written by hand.
#include "numerics/block_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "numerics/quant_matrix.h"

namespace sluice {
namespace {

TEST(BlockFormat, TableAndNamesAgree) {
  for (const char* name : {"fp8-tensor", "fp8-row", "fp8-block", "fp8-group", "nvfp4", "mxfp4", "mxfp8"}) {
    const auto format = block_format_from_name(name);
    ASSERT_TRUE(format.has_value()) << name;
    EXPECT_EQ(block_format_info(*format).format, *format);
    EXPECT_EQ(block_format_info(*format).name, name);
  }
  EXPECT_FALSE(block_format_from_name("fp4").has_value());
}

TEST(BlockFormat, NvfpAndMxDiffer) {
  const BlockFormatInfo& nvfp4 = block_format_info(BlockFormat::nvfp4);
  const BlockFormatInfo& mxfp4 = block_format_info(BlockFormat::mxfp4);
  EXPECT_EQ(nvfp4.block_cols, 16);
  EXPECT_EQ(nvfp4.scale, DType::e4m3);
  EXPECT_TRUE(nvfp4.has_tensor_scale);
  EXPECT_EQ(mxfp4.block_cols, 32);
  EXPECT_EQ(mxfp4.scale, DType::e8m0);
  EXPECT_FALSE(mxfp4.has_tensor_scale);
  EXPECT_EQ(nvfp4.element_max, 6.0f);
  EXPECT_EQ(block_format_info(BlockFormat::mxfp8).element_max, 448.0f);
}

TEST(BlockFormat, LayoutOfCheckpointShapes) {
  // Qwen3-30B-A3B NVFP4 gate: U8 [768, 1024], scales [768, 128].
  BlockLayout layout = block_layout(block_format_info(BlockFormat::nvfp4), 768, 2048);
  EXPECT_EQ(layout.code_row_bytes, 1024);
  EXPECT_EQ(layout.scale_rows, 768);
  EXPECT_EQ(layout.scale_cols, 128);
  // DeepSeek-V3 down: e4m3 [7168, 2048], scales [56, 16].
  layout = block_layout(block_format_info(BlockFormat::fp8_block), 7168, 2048);
  EXPECT_EQ(layout.code_row_bytes, 2048);
  EXPECT_EQ(layout.scale_rows, 56);
  EXPECT_EQ(layout.scale_cols, 16);
  // GPT-OSS: 2880 columns are 90 blocks of 32.
  EXPECT_EQ(block_layout(block_format_info(BlockFormat::mxfp4), 5760, 2880).scale_cols, 90);
}

TEST(BlockFormat, LayoutOfRaggedAndEmptyShapes) {
  BlockLayout layout = block_layout(block_format_info(BlockFormat::fp8_block), 129, 127);
  EXPECT_EQ(layout.scale_rows, 2);
  EXPECT_EQ(layout.scale_cols, 1);
  layout = block_layout(block_format_info(BlockFormat::nvfp4), 3, 17);
  EXPECT_EQ(layout.code_row_bytes, 9);
  EXPECT_EQ(layout.scale_cols, 2);
  layout = block_layout(block_format_info(BlockFormat::fp8_row), 5, 0);
  EXPECT_EQ(layout.scale_rows, 5);
  EXPECT_EQ(layout.scale_cols, 0);
  layout = block_layout(block_format_info(BlockFormat::fp8_tensor), 5, 7);
  EXPECT_EQ(layout.scale_rows, 0);
  EXPECT_EQ(layout.scale_cols, 0);
}

TEST(Dequantize, NvfpMultipliesCodeBlockScaleAndTensorScale) {
  QuantMatrix matrix = make_quant_matrix(BlockFormat::nvfp4, 2, 18);
  matrix.tensor_scale = 0.25f;
  matrix.byte_scale_row(1)[0] = 0x40;  // e4m3 2
  matrix.byte_scale_row(1)[1] = 0x34;  // e4m3 0.75
  matrix.code_row(1)[0] = 0xD7;        // 6, then -3
  matrix.code_row(1)[8] = 0x3F;        // column 16: -6, column 17: 1.5
  std::vector<float> row(18);
  dequantize_row(matrix, 1, row);
  EXPECT_EQ(row[0], 3.0f);
  EXPECT_EQ(row[1], -1.5f);
  EXPECT_EQ(row[2], 0.0f);
  EXPECT_EQ(row[16], -1.125f);
  EXPECT_EQ(row[17], 0.28125f);
}

TEST(Dequantize, BlocksOf128RowsAndColumns) {
  QuantMatrix matrix = make_quant_matrix(BlockFormat::fp8_block, 130, 129);
  matrix.float_scales = {1.0f, 10.0f, 100.0f, 1000.0f};
  std::fill(matrix.codes.begin(), matrix.codes.end(), std::uint8_t{0x38});  // 1
  const std::vector<float> values = dequantize(matrix);
  EXPECT_EQ(values[127 * 129 + 127], 1.0f);
  EXPECT_EQ(values[127 * 129 + 128], 10.0f);
  EXPECT_EQ(values[128 * 129 + 127], 100.0f);
  EXPECT_EQ(values[129 * 129 + 128], 1000.0f);
}

TEST(Dequantize, MxScalesAndNan) {
  QuantMatrix matrix = make_quant_matrix(BlockFormat::mxfp8, 1, 64);
  matrix.byte_scales = {130, 255};
  matrix.codes[5] = 0xC0;  // -2
  const std::vector<float> values = dequantize(matrix);
  EXPECT_EQ(values[5], -16.0f);
  EXPECT_TRUE(std::isnan(values[32]) && std::isnan(values[63]));
}

TEST(Dequantize, TensorAndRowScales) {
  QuantMatrix tensor = make_quant_matrix(BlockFormat::fp8_tensor, 1, 2);
  tensor.tensor_scale = 3.0f;
  tensor.codes = {0x38, 0x7E};
  EXPECT_EQ(dequantize(tensor), (std::vector<float>{3.0f, 1344.0f}));
  QuantMatrix rows = make_quant_matrix(BlockFormat::fp8_row, 2, 1);
  rows.float_scales = {2.0f, 5.0f};
  rows.codes = {0x38, 0x38};
  EXPECT_EQ(dequantize(rows), (std::vector<float>{2.0f, 5.0f}));
}

TEST(Amax, NanDoesNotCountAndInfinityIsTheLargestFinite) {
  const std::vector<float> row = {1.0f, -3.0f, NAN, 2.0f};
  EXPECT_EQ(finite_amax(row), 3.0f);
  const std::vector<float> infinite = {1.0f, -INFINITY};
  EXPECT_EQ(finite_amax(infinite), std::numeric_limits<float>::max());
  EXPECT_EQ(finite_amax(std::vector<float>{}), 0.0f);
}

TEST(RowSpans, WrongLengthsAreNamed) {
  EXPECT_NO_THROW(check_row_spans(BlockFormat::nvfp4, 17, 9, 2));
  try {
    check_row_spans(BlockFormat::nvfp4, 17, 8, 2);
    FAIL() << "8 bytes cannot hold 17 codes";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("nvfp4"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("expected 9 and 2"), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice
