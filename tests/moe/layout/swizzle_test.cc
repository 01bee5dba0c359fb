// Scales in 128 x 4 tiles and their 6-D view: places written out by hand, and the published formula for every element.
#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "moe/layout/scale_swizzle.h"
#include "moe/random_layer.h"

namespace sluice::layout {
namespace {

ByteMatrix random_matrix(std::int64_t rows, std::int64_t cols) {
  ByteMatrix m = zero_bytes(rows, cols);
  testing::Random random(static_cast<std::uint64_t>(rows * 1000 + cols));
  for (std::uint8_t& b : m.bytes) b = static_cast<std::uint8_t>(1 + random.below(255));
  return m;
}

// One marked scale of a [rows, cols] matrix; where it ends up.
std::int64_t place_of(std::int64_t rows, std::int64_t cols, std::int64_t m, std::int64_t c) {
  ByteMatrix one = zero_bytes(rows, cols);
  one.row(m)[c] = 1;
  const ByteMatrix tiles = swizzle_scales(one);
  EXPECT_EQ(std::accumulate(tiles.bytes.begin(), tiles.bytes.end(), 0), 1);
  return std::find(tiles.bytes.begin(), tiles.bytes.end(), 1) - tiles.bytes.begin();
}

TEST(Swizzle, PlacesByHand) {
  EXPECT_EQ(place_of(128, 4, 0, 0), 0);
  EXPECT_EQ(place_of(128, 4, 0, 3), 3);
  EXPECT_EQ(place_of(128, 4, 1, 0), 16);    // the next row is 16 bytes on
  EXPECT_EQ(place_of(128, 4, 31, 2), 498);  // 31 * 16 + 2
  EXPECT_EQ(place_of(128, 4, 32, 0), 4);    // row 32 sits beside row 0
  EXPECT_EQ(place_of(128, 4, 97, 1), 29);   // 97 = 3 * 32 + 1: 16 + 12 + 1
  EXPECT_EQ(place_of(128, 4, 127, 3), 511);
  EXPECT_EQ(place_of(128, 8, 0, 4), 512);  // the tile to the right
  EXPECT_EQ(place_of(256, 8, 128, 0), 1024);
  EXPECT_EQ(place_of(256, 8, 255, 7), 2047);
}

TEST(Swizzle, EveryElementFollowsThePublishedFormula) {
  for (const auto& [rows, cols] : {std::pair{128, 4}, {256, 16}, {384, 12}, {100, 3}, {129, 5}, {1, 1}, {5760, 180}}) {
    const ByteMatrix scales = random_matrix(rows, cols);
    const ByteMatrix tiles = swizzle_scales(scales);
    const std::int64_t k_tiles = (cols + 3) / 4;
    std::int64_t sum_in = 0, sum_out = 0;
    for (std::int64_t m = 0; m < rows; ++m) {
      for (std::int64_t k = 0; k < cols; ++k) {
        const std::int64_t offset = m / 128 * (k_tiles * 512) + k / 4 * 512 + m % 32 * 16 + m % 128 / 32 * 4 + k % 4;
        ASSERT_EQ(tiles.bytes[offset], scales.row(m)[k]) << rows << "x" << cols << " at " << m << ", " << k;
        sum_in += scales.row(m)[k];
      }
    }
    for (const std::uint8_t b : tiles.bytes) sum_out += b;
    EXPECT_EQ(sum_in, sum_out) << "padding must be zero";
    EXPECT_EQ(tiles.bytes.size(), static_cast<std::size_t>((rows + 127) / 128 * k_tiles * 512));
    EXPECT_EQ(unswizzle_scales(tiles, rows, cols).bytes, scales.bytes);
  }
}

TEST(Swizzle, RefusesBytesOfAnotherSize) {
  EXPECT_THROW(unswizzle_scales(zero_bytes(1, 512), 129, 4), Error);
  EXPECT_THROW(unswizzle_scales(zero_bytes(1, 512), 128, 5), Error);
}

TEST(MmaViewOf, ShapeAndStrides) {
  const MmaView v = mma_view(256, 128, 16, 3, 3 * 256 * 8);
  EXPECT_EQ(v.shape, (std::array<std::int64_t, 6>{32, 4, 2, 4, 2, 3}));
  EXPECT_EQ(v.strides, (std::array<std::int64_t, 6>{16, 4, 1024, 1, 512, 2048}));
}

TEST(MmaViewOf, FindsEveryScale) {
  const std::int64_t rows = 384, cols = 320, groups = 2;
  std::vector<ByteMatrix> scales;
  std::vector<std::uint8_t> bytes;
  for (std::int64_t g = 0; g < groups; ++g) {
    scales.push_back(random_matrix(rows, cols / 16));
    scales.back().bytes[0] = static_cast<std::uint8_t>(g);
    const ByteMatrix tiles = swizzle_scales(scales.back());
    bytes.insert(bytes.end(), tiles.bytes.begin(), tiles.bytes.end());
  }
  const MmaView v = mma_view(rows, cols, 16, groups, static_cast<std::int64_t>(bytes.size()));
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t m = 0; m < rows; ++m) {
      for (std::int64_t c = 0; c < cols / 16; ++c) {
        const std::array<std::int64_t, 6> index = {m % 32, m % 128 / 32, m / 128, c % 4, c / 4, g};
        ASSERT_EQ(bytes[std::inner_product(index.begin(), index.end(), v.strides.begin(), std::int64_t{0})],
                  scales[static_cast<std::size_t>(g)].row(m)[c]);
      }
    }
  }
}

TEST(MmaViewOf, RefusesAnyOtherNumberOfScales) {
  EXPECT_THROW(mma_view(256, 128, 16, 3, 3 * 256 * 8 - 1), Error);
  EXPECT_THROW(mma_view(256, 128, 16, 2, 3 * 256 * 8), Error);
}

}  // namespace
}  // namespace sluice::layout
