// Parts of weights decode to the bits of the same elements of the whole, in every stored format.
#include "moe/weight_slices.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/rounding.h"
#include "moe/random_layer.h"
#include "numerics/bf16.h"

namespace sluice::testing {
namespace {

struct Format {
  const char* name;
  Recipe stored;
  DType codes;
  DType scales = DType::f32;
  std::int64_t block_rows = 0, block_cols = 0;  // 0 = no block scales; -1 = the whole width
  float tensor_scale = 1.0f;
};
constexpr Format kFormats[] = {
    {"bf16", Recipe::bf16, DType::bf16},
    {"f32", Recipe::f32, DType::f32},
    {"fp8 tensor", Recipe::fp8_tensor, DType::e4m3, DType::f32, 0, 0, 0.37f},
    {"fp8 channel", Recipe::fp8_tensor, DType::e4m3, DType::f32, 1, -1},
    {"fp8 block", Recipe::fp8_block, DType::e4m3, DType::f32, 128, 128},
    {"nvfp4", Recipe::nvfp4_w4a16, DType::e2m1, DType::e4m3, 1, 16, 0.37f},
    {"mxfp4", Recipe::mxfp4_w4a16, DType::e2m1, DType::e8m0, 1, 32},
};

// A matrix of random finite codes and scales, every scale another one.
struct Matrix {
  Matrix(const Format& f, std::int64_t rows, std::int64_t cols, bool transposed = false) {
    Random random(static_cast<std::uint64_t>(rows * 7919 + cols));
    const std::int64_t stored_cols = f.codes == DType::e2m1 ? rounded_up(cols, 2) : cols;
    codes = random_values(random, f.codes, rows * stored_cols);
    weight.codes = {codes.data(), f.codes, rows, cols, transposed ? 1 : stored_cols, transposed ? rows : 1};
    weight.tensor_scale = f.tensor_scale;
    if (f.block_cols == 0) return;
    const std::int64_t width = f.block_cols < 0 ? cols : f.block_cols;
    const std::int64_t grid_cols = ceil_div(cols, width);
    scales = random_values(random, f.scales, ceil_div(rows, f.block_rows) * grid_cols);
    weight.block_scale = {scales.data(), f.scales, f.block_rows, width, grid_cols, 1};
  }

  static std::vector<std::byte> random_values(Random& random, DType type, std::int64_t count) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(dtype_bytes(type, count)));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte{static_cast<unsigned char>(random.below(120))};
    if (type != DType::bf16 && type != DType::f32) return bytes;
    for (std::int64_t i = 0; i < count; ++i) {
      const float v = 0.01f + random.unit();
      const Bf16 half = to_bf16(v);
      const bool wide = type == DType::f32;
      std::memcpy(bytes.data() + dtype_bytes(type, i), wide ? static_cast<const void*>(&v) : &half, wide ? 4 : 2);
    }
    return bytes;
  }

  std::vector<std::byte> codes, scales;
  QuantTensor weight;
};

std::vector<float> row(const QuantTensor& w, std::int64_t n) {
  std::vector<float> out(static_cast<std::size_t>(w.codes.cols));
  decode_row(w, n, out.data());
  return out;
}

// Whether `part` holds elements [rows] x [cols] of `whole`, bit for bit.
void expect_part(const QuantTensor& part, const QuantTensor& whole, const Share& rows, const Share& cols) {
  ASSERT_EQ(part.codes.rows, rows.count());
  ASSERT_EQ(part.codes.cols, cols.count());
  for (std::int64_t n = 0; n < rows.count(); ++n) {
    const std::vector<float> expected = row(whole, rows.begin + n);
    const std::vector<float> wanted(expected.begin() + cols.begin, expected.begin() + cols.end);
    ASSERT_EQ(row(part, n), wanted) << "row " << n << " of " << rows.begin << ".." << rows.end;
  }
}

// I of real and awkward models, and pieces that do not divide them evenly into groups.
struct Cut {
  std::int64_t inner;
  std::int32_t pieces;
};
constexpr Cut kCuts[] = {{2880, 4}, {1408, 8}, {1856, 8}, {2880, 2}, {96, 2}, {192, 4}, {232, 3}, {768, 3}};

TEST(WeightSlices, PiecesOfEveryFormatDecodeAsTheWhole) {
  for (const Format& f : kFormats) {
    for (const Cut& c : kCuts) {
      const std::int64_t group = cut_group(f.stored);
      if (ceil_div(c.inner, group) < c.pieces) continue;  // PiecesThatWouldBeEmpty
      SCOPED_TRACE(std::string(f.name) + " I " + std::to_string(c.inner) + " / " + std::to_string(c.pieces));
      const std::int64_t width = 48;
      const Matrix up(f, c.inner, width), down(f, width, c.inner);
      std::int64_t end = 0;
      for (std::int32_t p = 0; p < c.pieces; ++p) {
        const Share part = cut_share(c.inner, group, {p, c.pieces}, "I", "");
        EXPECT_EQ(part.begin, end);
        EXPECT_EQ(part.begin % group, 0);
        end = part.end;
        expect_part(rows_of(up.weight, part), up.weight, part, {0, width});
        expect_part(columns_of(down.weight, part), down.weight, {0, width}, part);
      }
      EXPECT_EQ(end, c.inner);
    }
  }
}

TEST(WeightSlices, PiecesOfTransposedWeights) {
  for (const Format& f : {kFormats[0], kFormats[1], kFormats[3]}) {
    const Matrix m(f, 96, 80, true);
    expect_part(rows_of(m.weight, {32, 80}), m.weight, {32, 80}, {0, 80});
    expect_part(columns_of(m.weight, {16, 48}), m.weight, {0, 96}, {16, 48});
  }
}

// Heads of 64 rows, blocks of 128: scales of 64 rows are made.
TEST(WeightSlices, RowsThatBeginInsideOfABlock) {
  const Matrix m(kFormats[4], 448, 300);
  for (const Share rows : {Share{64, 448}, Share{64, 128}, Share{192, 320}, Share{80, 272}, Share{128, 384}}) {
    std::vector<std::byte> scales;
    const QuantTensor part = rows_of(m.weight, rows, scales);
    expect_part(part, m.weight, rows, {0, 300});
    EXPECT_EQ(128 % part.block_scale.block_rows, 0);
  }
  EXPECT_THROW(rows_of(m.weight, {64, 448}), Error);
  EXPECT_NO_THROW(rows_of(m.weight, {64, 128}));  // within one block
}

TEST(WeightSlices, CutsThatAreNoViewsAreRefused) {
  EXPECT_THROW(columns_of(Matrix(kFormats[5], 4, 64).weight, {8, 40}), Error);   // a group of 16
  EXPECT_THROW(columns_of(Matrix(kFormats[6], 4, 64).weight, {16, 64}), Error);  // a group of 32
  EXPECT_THROW(columns_of(Matrix(kFormats[5], 4, 64).weight, {3, 9}), Error);    // half a byte
  EXPECT_THROW(columns_of(Matrix(kFormats[4], 4, 384).weight, {64, 384}), Error);
}

TEST(WeightSlices, PiecesThatWouldBeEmpty) {
  try {
    cut_share(96, 32, {3, 4}, "the width of things", "fewer");
    FAIL() << "cut";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
    for (const char* part : {"the width of things, 96", "4 pieces", "at most 3", "groups of 32"}) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  }
}

TEST(WeightSlices, PartsOfBiases) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  const BiasView all{values.data() + 1, DType::f32, 4, 2};  // 2 4 6 8
  const BiasView part = part_of(all, {1, 3});
  EXPECT_EQ(part.count, 2);
  EXPECT_EQ(decode_bias(part, 0), 4.0f);
  EXPECT_EQ(decode_bias(part, 1), 6.0f);
}

}  // namespace
}  // namespace sluice::testing
