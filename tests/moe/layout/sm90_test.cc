// The Hopper layout of MXFP4: words written out by hand, the published mapping for every code, folded scales.
#include "moe/layout/sm90.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "moe/random_layer.h"

namespace sluice::layout {
namespace {

ByteMatrix random_bytes(std::int64_t rows, std::int64_t row_bytes) {
  ByteMatrix m = zero_bytes(rows, row_bytes);
  testing::Random random(7);
  for (std::uint8_t& b : m.bytes) b = static_cast<std::uint8_t>(random.bits());
  return m;
}

std::uint32_t word_at(const ByteMatrix& m, std::int64_t row, std::int64_t byte) {
  const std::uint8_t* p = m.row(row) + byte;
  return p[0] | p[1] << 8 | p[2] << 16 | static_cast<std::uint32_t>(p[3]) << 24;
}

// The word with the one code `code` at (row, col) of a 16 x 64 matrix, and its address.
struct Found {
  std::int64_t row = -1, byte = -1;
  std::uint32_t word = 0;
};
Found single_code(std::int64_t row, std::int64_t col, std::uint8_t code) {
  ByteMatrix m = zero_bytes(16, 32);
  m.row(row)[col / 2] = static_cast<std::uint8_t>(col % 2 == 0 ? code : code << 4);
  const ByteMatrix out = interleave_sm90_codes(m);
  Found found;
  for (std::int64_t r = 0; r < 16; ++r) {
    for (std::int64_t b = 0; b < 32; b += 4) {
      if (word_at(out, r, b) == 0) continue;
      EXPECT_EQ(found.row, -1) << "two words";
      found = {r, b, word_at(out, r, b)};
    }
  }
  return found;
}

void expect_found(std::int64_t row, std::int64_t col, std::uint8_t code, const Found& expected) {
  const Found f = single_code(row, col, code);
  EXPECT_EQ(f.row, expected.row) << row << ", " << col;
  EXPECT_EQ(f.byte, expected.byte) << row << ", " << col;
  EXPECT_EQ(f.word, expected.word) << row << ", " << col << std::hex << " " << f.word;
}

TEST(Sm90Codes, WordsByHand) {
  expect_found(0, 0, 0xF, {0, 0, 0x81C0});      // first code: sign 15, magnitude 8 to 6
  expect_found(0, 1, 0xF, {0, 0, 0x81C00000});  // odd column: upper half
  expect_found(8, 0, 0xF, {0, 0, 0x1038});      // row + 8: three bits down
  expect_found(0, 8, 0xF, {0, 0, 0x0207});      // column + 8: six bits down
  expect_found(8, 8, 0xF, {0, 0, 0x6C00});      // the bits that are left
  expect_found(8, 8, 0x1, {0, 0, 0x2000});      // lowest magnitude bit at 13
  expect_found(8, 8, 0x2, {0, 0, 0x0400});
  expect_found(8, 8, 0x4, {0, 0, 0x0800});
  expect_found(8, 9, 0x8, {0, 0, 0x40000000});     // its sign at 14
  expect_found(0, 2, 0x1, {0, 4, 0x0040});         // next pair of columns: next word
  expect_found(0, 16, 0x1, {8, 0, 0x0040});        // next 16 columns: 8 rows down
  expect_found(0, 32, 0x1, {0, 16, 0x0040});       // next 32: 16 bytes on
  expect_found(7, 63, 0x1, {15, 28, 0x00010000});  // column 63 = 48 + 8 + 7: second code of odd columns
}

// Mask and shift (left when positive) of each bit field of the raw word {row r, row r + 8, row r + 4 bytes, row r + 8
// + 4 bytes}, as the published kernel applies them.
struct Field {
  std::uint32_t mask;
  int left;
};
constexpr Field kFields[] = {{0x00000080, 24},  {0x00000070, 18},  {0x00000008, 12}, {0x00000007, 6}, {0x00008000, 13},
                             {0x00007000, 7},   {0x00000800, 1},   {0x00000700, -5}, {0x00800000, 2}, {0x00700000, -4},
                             {0x00080000, -10}, {0x00070000, -16}, {0x80000000, -1}, {0x10000000, 1}, {0x60000000, -3},
                             {0x08000000, -13}, {0x01000000, -11}, {0x06000000, -15}};

TEST(Sm90Codes, EveryWordFollowsThePublishedMapping) {
  const std::int64_t rows = 48, row_bytes = 96;
  const ByteMatrix codes = random_bytes(rows, row_bytes);
  const ByteMatrix out = interleave_sm90_codes(codes);
  for (std::int64_t block = 0; block < rows / 2; ++block) {
    for (std::int64_t part = 0; part < row_bytes / 32; ++part) {
      for (std::int64_t lane = 0; lane < 16; ++lane) {
        const std::int64_t row = block / 8 * 16 + block % 8, col = part * 32 + lane / 4 * 8 + lane % 4;
        const std::uint32_t raw = codes.row(row)[col] | codes.row(row + 8)[col] << 8 | codes.row(row)[col + 4] << 16 |
                                  static_cast<std::uint32_t>(codes.row(row + 8)[col + 4]) << 24;
        std::uint32_t word = 0;
        for (const Field& f : kFields) word |= f.left > 0 ? (raw & f.mask) << f.left : (raw & f.mask) >> -f.left;
        ASSERT_EQ(word_at(out, row + lane / 4 % 2 * 8, part * 32 + lane / 8 * 16 + lane % 4 * 4), word)
            << block << " " << part << " " << lane;
      }
    }
  }
  EXPECT_EQ(deinterleave_sm90_codes(out).bytes, codes.bytes);
}

TEST(Sm90Codes, RefuseSizesOffTheSlab) {
  EXPECT_THROW(interleave_sm90_codes(zero_bytes(24, 32)), Error);
  EXPECT_THROW(interleave_sm90_codes(zero_bytes(16, 48)), Error);
  EXPECT_THROW(deinterleave_sm90_codes(zero_bytes(8, 32)), Error);
}

TEST(Sm90Scales, FoldedByHand) {
  ByteMatrix scales = zero_bytes(128, 8);
  const auto place = [&](std::int64_t m, std::int64_t c) {
    ByteMatrix one = scales;
    one.row(m)[c] = 1;
    const ByteMatrix folded = fold_sm90_scales(one);
    return std::find(folded.bytes.begin(), folded.bytes.end(), 1) - folded.bytes.begin();
  };
  EXPECT_EQ(place(0, 0), 0);
  EXPECT_EQ(place(0, 3), 3);
  EXPECT_EQ(place(1, 0), 16);
  EXPECT_EQ(place(16, 0), 4);
  EXPECT_EQ(place(63, 3), 255);
  EXPECT_EQ(place(0, 4), 256);
  EXPECT_EQ(place(64, 0), 512);
  EXPECT_EQ(place(127, 7), 1023);
}

TEST(Sm90Scales, EveryElementAndTheInverse) {
  const ByteMatrix scales = random_bytes(192, 12);
  const ByteMatrix folded = fold_sm90_scales(scales);
  for (std::int64_t m = 0; m < 192; ++m) {
    for (std::int64_t c = 0; c < 12; ++c) {
      const std::int64_t block = m / 64 * 3 + c / 4;
      ASSERT_EQ(folded.bytes[block * 256 + m % 16 * 16 + m % 64 / 16 * 4 + c % 4], scales.row(m)[c]);
    }
  }
  EXPECT_EQ(folded.rows, 9);
  EXPECT_EQ(unfold_sm90_scales(folded, 192, 12).bytes, scales.bytes);
}

TEST(Sm90Scales, RefuseSizesOffTheBlock) {
  EXPECT_THROW(fold_sm90_scales(zero_bytes(96, 4)), Error);
  EXPECT_THROW(fold_sm90_scales(zero_bytes(64, 6)), Error);
  EXPECT_THROW(unfold_sm90_scales(zero_bytes(1, 256), 128, 4), Error);
}

}  // namespace
}  // namespace sluice::layout
