#include "moe/weights.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "core/error.h"
#include "moe/random_layer.h"
#include "numerics/e8m0.h"
#include "numerics/fp8.h"

namespace sluice {
namespace {

std::vector<float> row(const QuantTensor& w, std::int64_t n) {
  std::vector<float> out(static_cast<std::size_t>(w.codes.cols));
  decode_row(w, n, out.data());
  return out;
}

using Floats = std::vector<float>;

TEST(DecodeRow, FloatTypes) {
  const Floats f32 = {1.5f, -2.0f, 3.0f, 4.0f};
  EXPECT_EQ(row({{f32.data(), DType::f32, 2, 2, 2, 1}, {}, 1.0f}, 1), (Floats{3.0f, 4.0f}));
  const std::vector<std::uint16_t> bf16 = {0x3FC0, 0xC000};  // 1.5, -2
  EXPECT_EQ(row({{bf16.data(), DType::bf16, 1, 2, 2, 1}, {}, 1.0f}, 0), (Floats{1.5f, -2.0f}));
  const std::vector<std::uint16_t> f16 = {0x3E00, 0xC000, 0x0001};  // 1.5, -2, 2^-24
  EXPECT_EQ(row({{f16.data(), DType::f16, 1, 3, 3, 1}, {}, 1.0f}, 0), (Floats{1.5f, -2.0f, 0x1p-24f}));
}

TEST(DecodeRow, StridesTransposeAndInterleave) {
  const Floats data = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(row({{data.data(), DType::f32, 3, 2, 1, 3}, {}, 1.0f}, 1), (Floats{2, 5}));         // stored [2, 3]
  EXPECT_EQ(row({{data.data() + 1, DType::f32, 1, 3, 6, 2}, {}, 1.0f}, 0), (Floats{2, 4, 6}));  // odd columns
}

TEST(DecodeRow, E4m3WithBlocksOfTwoByTwoAndTensorScale) {
  // codes 1, 2, 448, -1 / 1 1 1 1 / 1 1 1 1: e4m3 1 = 0x38, 2 = 0x40, 448 = 0x7E, -1 = 0xB8
  const std::vector<std::uint8_t> codes = {0x38, 0x40, 0x7E, 0xB8, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38};
  const Floats scales = {0.5f, 4.0f, 8.0f, 16.0f};  // [2, 2], the second row for matrix row 2
  const QuantTensor w{{codes.data(), DType::e4m3, 3, 4, 4, 1}, {scales.data(), DType::f32, 2, 2, 2, 1}, 10.0f};
  EXPECT_EQ(row(w, 0), (Floats{5.0f, 10.0f, 17920.0f, -40.0f}));
  EXPECT_EQ(row(w, 1), (Floats{5.0f, 5.0f, 40.0f, 40.0f}));
  EXPECT_EQ(row(w, 2), (Floats{80.0f, 80.0f, 160.0f, 160.0f}));
}

TEST(DecodeRow, Nvfp4LowNibbleFirst) {
  // One row of 32: codes 1 (0.5) and 15 (-6) alternate; block scales 2 (0x40) and 0.5 (0x30), tensor scale 0.25.
  const std::vector<std::uint8_t> codes(16, 0xF1);
  const std::vector<std::uint8_t> scales = {0x40, 0x30};
  const QuantTensor w{{codes.data(), DType::e2m1, 1, 32, 32, 1}, {scales.data(), DType::e4m3, 1, 16, 2, 1}, 0.25f};
  const Floats out = row(w, 0);
  EXPECT_EQ(out[0], 0.25f);
  EXPECT_EQ(out[1], -3.0f);
  EXPECT_EQ(out[15], -3.0f);
  EXPECT_EQ(out[16], 0.0625f);
  EXPECT_EQ(out[31], -0.75f);
}

TEST(DecodeRow, Mxfp4AndAShortLastBlock) {
  const std::vector<std::uint8_t> codes(20, 0x22);  // 40 codes of 1
  const std::vector<std::uint8_t> scales = {127, 130};
  const QuantTensor w{{codes.data(), DType::e2m1, 1, 40, 40, 1}, {scales.data(), DType::e8m0, 1, 32, 2, 1}, 1.0f};
  const Floats out = row(w, 0);
  EXPECT_EQ(out[31], 1.0f);
  EXPECT_EQ(out[32], 8.0f);
  EXPECT_EQ(out[39], 8.0f);
}

// 130 columns and 3 rows under 128 x 128 blocks of every scale type, as a file may store them: [1, 2] scales, or the
// same transposed.
TEST(DecodeRow, RaggedFp8BlocksWithScalesOfEveryType) {
  const std::vector<std::uint8_t> codes(3 * 130, 0x40);  // 2
  const Floats f32 = {0.5f, 4.0f};
  const std::vector<std::uint16_t> bf16 = {0x3F00, 0x4080};
  const std::vector<std::uint8_t> e8m0 = {126, 129};
  for (const auto& [data, type] : {std::pair<const void*, DType>{f32.data(), DType::f32},
                                   {bf16.data(), DType::bf16},
                                   {e8m0.data(), DType::e8m0}}) {
    const QuantTensor w{{codes.data(), DType::e4m3, 3, 130, 130, 1}, {data, type, 128, 128, 2, 1}, 1.0f};
    const Floats out = row(w, 2);
    EXPECT_EQ(out[0], 1.0f) << dtype_name(type);
    EXPECT_EQ(out[127], 1.0f) << dtype_name(type);
    EXPECT_EQ(out[128], 8.0f) << dtype_name(type);
    EXPECT_EQ(out[129], 8.0f) << dtype_name(type);
  }
}

TEST(DecodeRow, LastRowOfARaggedGridAndTransposedScales) {
  const std::vector<std::uint8_t> codes(130 * 129, 0x38);  // 1
  const Floats grid = {1, 2, 3, 4};                        // [2, 2]
  const QuantTensor plain{{codes.data(), DType::e4m3, 130, 129, 129, 1}, {grid.data(), DType::f32, 128, 128, 2, 1}};
  EXPECT_EQ(row(plain, 127)[128], 2.0f);
  EXPECT_EQ(row(plain, 128)[127], 3.0f);
  EXPECT_EQ(row(plain, 129)[128], 4.0f);
  QuantTensor transposed = plain;
  transposed.block_scale.row_stride = 1;
  transposed.block_scale.col_stride = 2;
  EXPECT_EQ(row(transposed, 127)[128], 3.0f);
  EXPECT_EQ(decode_block_scale(transposed.block_scale, 129, 0), 2.0f);
}

TEST(DecodeRow, PartsOfAValue) {
  const std::vector<std::uint8_t> codes(8, 0x25);  // 3 and 1
  const std::vector<std::uint8_t> scales = {0x40};
  const QuantTensor w{{codes.data(), DType::e2m1, 1, 16, 16, 1}, {scales.data(), DType::e4m3, 1, 16, 1, 1}, 0.125f};
  Floats out(16);
  decode_row_codes(w, 0, out.data());
  EXPECT_EQ(out[0], 3.0f);
  decode_row_blocks(w, 0, out.data());
  EXPECT_EQ(out[1], 2.0f);
  decode_row(w, 0, out.data());
  EXPECT_EQ(out[0], 0.75f);
  EXPECT_EQ(decode_block_scale({}, 5, 5), 1.0f);
}

TEST(DecodeRow, RefusesBlocksWithoutExtent) {
  const std::vector<std::uint8_t> codes(16, 0x38);
  const Floats scales = {1.0f};
  Floats out(16);
  for (const std::int64_t extent : {0, -1}) {
    const QuantTensor w{{codes.data(), DType::e4m3, 1, 16, 16, 1}, {scales.data(), DType::f32, 1, extent, 1, 1}, 1.0f};
    EXPECT_THROW(decode_row(w, 0, out.data()), Error);
  }
}

TEST(DecodeRow, RefusesWhatItCannotRead) {
  const std::vector<std::uint8_t> codes(16, 0);
  Floats out(8);
  EXPECT_THROW(decode_row({{codes.data(), DType::e2m1, 8, 2, 1, 8}, {}, 1.0f}, 0, out.data()), Error);  // transposed
  EXPECT_THROW(decode_row({{codes.data(), DType::e2m1, 2, 3, 3, 1}, {}, 1.0f}, 0, out.data()), Error);  // odd stride
  EXPECT_THROW(decode_row({{codes.data(), DType::i8, 2, 8, 8, 1}, {}, 1.0f}, 0, out.data()), Error);
}

TEST(DecodeBias, TypesAndStride) {
  const std::vector<std::uint16_t> bf16 = {0x3F80, 0xFFFF, 0x4000, 0xFFFF};
  EXPECT_EQ(decode_bias({bf16.data(), DType::bf16, 2, 2}, 1), 2.0f);
  const Floats f32 = {3.5f};
  EXPECT_EQ(decode_bias({f32.data(), DType::f32, 1, 1}, 0), 3.5f);
}

TEST(RandomWeights, LayoutsHoldTheSameValues) {
  testing::LayerOptions o;
  o.layer.hidden = 24;
  o.layer.intermediate = 10;
  o.layer.routing.experts = 3;
  o.layer.routing.top_k = 1;
  const ExpertWeights dense = testing::random_weights(o);
  for (const auto layout : {testing::WeightLayout::padded, testing::WeightLayout::transposed,
                            testing::WeightLayout::interleaved, testing::WeightLayout::gpt_oss}) {
    o.layout = layout;
    const ExpertWeights other = testing::random_weights(o);
    for (int e = 0; e < 3; ++e) {
      for (int n = 0; n < 10; ++n) {
        EXPECT_EQ(row(dense.gate[e], n), row(other.gate[e], n));
        EXPECT_EQ(row(dense.up[e], n), row(other.up[e], n));
      }
      EXPECT_EQ(row(dense.down[e], 23), row(other.down[e], 23));
    }
  }
  EXPECT_NE(row(dense.gate[0], 0), row(dense.up[0], 0));
}

}  // namespace
}  // namespace sluice
