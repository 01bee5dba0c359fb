// Hand-computed cases of the MX quantisers. The comparison with numpy is test_block_formats.py.
#include "numerics/block_mx.h"

#include <gtest/gtest.h>

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

Row mxfp4(const std::vector<float>& row, MxScale rule = MxScale::round_up, MxTie tie = MxTie::even) {
  const BlockLayout layout = block_layout(block_format_info(BlockFormat::mxfp4), 1, row.size());
  Row out{Bytes(layout.code_row_bytes, 0xAA), Bytes(layout.scale_cols, 0xAA)};
  quantize_mxfp4_row(row, out.codes, out.scales, rule, tie);
  return out;
}

Row mxfp8(const std::vector<float>& row, MxScale rule = MxScale::round_up) {
  const BlockLayout layout = block_layout(block_format_info(BlockFormat::mxfp8), 1, row.size());
  Row out{Bytes(layout.code_row_bytes, 0xAA), Bytes(layout.scale_cols, 0xAA)};
  quantize_mxfp8_row(row, out.codes, out.scales, rule);
  return out;
}

TEST(Mxfp4, TiesInBothVariants) {
  const std::vector<float> row = {6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, -5};
  const Row even = mxfp4(row);
  EXPECT_EQ(even.scales, Bytes{127});
  EXPECT_EQ(even.codes, (Bytes{0x07, 0x22, 0x44, 0xE6}));
  const Row lower = mxfp4(row, MxScale::round_up, MxTie::lower);
  EXPECT_EQ(lower.scales, Bytes{127});
  EXPECT_EQ(lower.codes, (Bytes{0x07, 0x21, 0x43, 0xE5}));
}

struct ScaleCase {
  float amax;
  int up;  // exponents of the scale
  int floor;
};

TEST(Mxfp4, RoundUpAndFloorScales) {
  const float just_above = std::nextafter(6.0f, 7.0f);
  const ScaleCase cases[] = {{6.0f, 0, 0},  {just_above, 1, 0}, {7.9f, 1, 0},     {8.0f, 1, 1},    {12.0f, 1, 1},
                             {4.0f, 0, 0},  {3.9f, 0, -1},      {3.0f, -1, -1},   {0.75f, -3, -3}, {1.0f, -2, -2},
                             {96.0f, 4, 4}, {100.0f, 5, 4},     {1e-3f, -12, -12}};
  for (const ScaleCase& c : cases) {
    EXPECT_EQ(mxfp4({c.amax, 0.0f}).scales[0], 127 + c.up) << c.amax;
    EXPECT_EQ(mxfp4({-c.amax, 0.0f}, MxScale::ocp_floor).scales[0], 127 + c.floor) << c.amax;
  }
}

TEST(Mxfp4, FloorRuleSaturates) {
  EXPECT_EQ(mxfp4({7.5f, -3.0f}).codes, Bytes{0xB6});                      // scale 2: 3.75 > 4, -1.5
  EXPECT_EQ(mxfp4({7.5f, -3.0f}, MxScale::ocp_floor).codes, Bytes{0xD7});  // scale 1: 7.5 > 6, -3
}

TEST(Mxfp4, ZeroAndTinyBlocks) {
  const Row zero = mxfp4({0.0f, -0.0f});
  EXPECT_EQ(zero.scales, Bytes{0});
  EXPECT_EQ(zero.codes, Bytes{0x80});
  EXPECT_EQ(mxfp4({0.0f, -0.0f}, MxScale::ocp_floor).scales, Bytes{0});
  const float tiny = 6.0f * 0x1p-127f;
  EXPECT_EQ(mxfp4({tiny, 0.0f}).scales, Bytes{0});
  EXPECT_EQ(mxfp4({tiny, 0.0f}).codes, Bytes{0x00});  // multiplier 1 for b = 0
  EXPECT_EQ(mxfp4({tiny, 0.0f}, MxScale::ocp_floor).scales, Bytes{0});
  EXPECT_EQ(mxfp4({tiny, 0.0f}, MxScale::ocp_floor).codes, Bytes{0x07});
  EXPECT_EQ(mxfp4({2 * tiny, 0.0f}).scales, Bytes{1});
  EXPECT_EQ(mxfp4({2 * tiny, 0.0f}).codes, Bytes{0x07});
}

TEST(Mxfp4, NanPoisonsItsBlockOnly) {
  std::vector<float> row(96, 6.0f);
  row[40] = NAN;
  const Row out = mxfp4(row);
  EXPECT_EQ(out.scales, (Bytes{127, 255, 127}));
  EXPECT_EQ(out.codes[15], 0x77);
  for (std::size_t i = 16; i < 32; ++i) EXPECT_EQ(out.codes[i], 0x00);
  EXPECT_EQ(out.codes[32], 0x77);
}

TEST(Mxfp4, InfinityIsTheLargestFloat) {
  const Row out = mxfp4({1.0f, -INFINITY});
  EXPECT_EQ(out.scales, Bytes{127 + 126});  // FLT_MAX / 6 lies between 2^125 and 2^126
  EXPECT_EQ(out.codes, Bytes{0xE0});        // FLT_MAX / 2^126 rounds to 4
}

TEST(Mxfp4, RaggedRow) {
  std::vector<float> row(33, 6.0f);
  row[32] = 12.0f;
  const Row out = mxfp4(row);
  EXPECT_EQ(out.scales, (Bytes{127, 128}));
  ASSERT_EQ(out.codes.size(), 17u);
  EXPECT_EQ(out.codes[16], 0x07);
}

TEST(Mxfp8, RoundUpAndFloorScales) {
  const float just_above = std::nextafter(448.0f, 449.0f);
  const ScaleCase cases[] = {{448.0f, 0, 0}, {just_above, 1, 0}, {511.0f, 1, 0},   {512.0f, 1, 1},
                             {256.0f, 0, 0}, {255.0f, 0, -1},    {224.0f, -1, -1}, {1.0f, -8, -8}};
  for (const ScaleCase& c : cases) {
    EXPECT_EQ(mxfp8({c.amax}).scales[0], 127 + c.up) << c.amax;
    EXPECT_EQ(mxfp8({-c.amax}, MxScale::ocp_floor).scales[0], 127 + c.floor) << c.amax;
  }
}

TEST(Mxfp8, CodesTiesAndSaturation) {
  const Row out = mxfp8({448.0f, 1.0625f, 1.1875f, -0.0f});
  EXPECT_EQ(out.scales, Bytes{127});
  EXPECT_EQ(out.codes, (Bytes{0x7E, 0x38, 0x3A, 0x80}));
  EXPECT_EQ(mxfp8({500.0f, 2.0f}).codes, (Bytes{0x78, 0x38}));                      // scale 2: 250 > 256, 1
  EXPECT_EQ(mxfp8({500.0f, 2.0f}, MxScale::ocp_floor).codes, (Bytes{0x7E, 0x40}));  // scale 1: 448, 2
}

TEST(Mxfp8, ZeroTinyNanAndRagged) {
  std::vector<float> row(65, 0.0f);
  row[32] = 448.0f * 0x1p-127f;
  row[33] = NAN;
  row[64] = 448.0f;
  const Row out = mxfp8(row);
  EXPECT_EQ(out.scales, (Bytes{0, 0, 127}));
  EXPECT_EQ(out.codes[0], 0x00);
  EXPECT_EQ(out.codes[32], 0x7E);  // b = 0 is an ordinary scale here
  EXPECT_EQ(out.codes[33], 0x7F);
  EXPECT_EQ(out.codes[64], 0x7E);
}

TEST(Mx, WrongSpansAreRefused) {
  const std::vector<float> row(32, 1.0f);
  Bytes codes(16), scales(2);
  EXPECT_THROW(quantize_mxfp4_row(row, codes, scales), Error);
  EXPECT_THROW(quantize_mxfp8_row(row, codes, scales), Error);
}

}  // namespace
}  // namespace sluice
