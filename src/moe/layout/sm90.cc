#include "moe/layout/sm90.h"

#include <algorithm>
#include <array>
#include <string>

#include "core/error.h"

namespace sluice::layout {
namespace {

constexpr std::int64_t kSlabRows = 16;
constexpr std::int64_t kSlabBytes = 32;  // 64 columns
constexpr std::int64_t kSlices = 4;      // of 16 rows in a folded block of scales

// Where the bits 0..3 of code j lie in its half word. Codes 0..2: magnitude and sign 3 bits further down each, as
// bf16 bits (sign 15, lowest exponent bits 8 and 7, highest mantissa bit 6) after a shift left by 3 j. Code 3 takes the
// bits that are left.
constexpr std::array<std::array<int, 4>, 4> kBits = {{{6, 7, 8, 15}, {3, 4, 5, 12}, {0, 1, 2, 9}, {13, 10, 11, 14}}};

// The bytes of one slab that make one word, in the order of the codes j, and where the word goes.
struct Word {
  std::array<std::int64_t, 4> from{};  // offsets into the codes
  std::int64_t to = 0;
};

template <class Visit>
void for_each_word(std::int64_t rows, std::int64_t row_bytes, Visit visit) {
  if (rows % kSlabRows != 0 || row_bytes % kSlabBytes != 0) {
    fail(ErrorCode::bad_input,
         "codes of " + std::to_string(rows) + " x " + std::to_string(2 * row_bytes) + " cannot be interleaved for SM90",
         "rows in multiples of 16 and columns in multiples of 64");
  }
  for (std::int64_t slab = 0; slab < rows; slab += kSlabRows) {
    for (std::int64_t begin = 0; begin < row_bytes; begin += kSlabBytes) {
      for (std::int64_t i = 0; i < 8 * 16; ++i) {
        const std::int64_t r = slab + i / 16, q = i / 4 % 4, l = i % 4;
        const std::int64_t byte = begin + 8 * q + l, upper = r * row_bytes + byte, lower = (r + 8) * row_bytes + byte;
        visit(Word{{upper, lower, upper + 4, lower + 4}, (r + q % 2 * 8) * row_bytes + begin + q / 2 * 16 + 4 * l});
      }
    }
  }
}

// Bits of `nibble` spread over a half word, and collected again.
std::uint32_t spread(std::uint32_t nibble, std::size_t j) {
  std::uint32_t half = 0;
  for (std::size_t bit = 0; bit < 4; ++bit) half |= (nibble >> bit & 1u) << kBits[j][bit];
  return half;
}
std::uint32_t collect(std::uint32_t half, std::size_t j) {
  std::uint32_t nibble = 0;
  for (std::size_t bit = 0; bit < 4; ++bit) nibble |= (half >> kBits[j][bit] & 1u) << bit;
  return nibble;
}

void check_fold(std::int64_t rows, std::int64_t cols) {
  if (rows % kFoldRows == 0 && cols % kFoldCols == 0) return;
  fail(ErrorCode::bad_input, "scales of " + std::to_string(rows) + " x " + std::to_string(cols) + " cannot be folded",
       "rows in multiples of 64 and columns in multiples of 4 (128 values)");
}

}  // namespace

ByteMatrix interleave_sm90_codes(const ByteMatrix& codes) {
  ByteMatrix out = zero_bytes(codes.rows, codes.row_bytes);
  for_each_word(codes.rows, codes.row_bytes, [&](const Word& w) {
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const std::uint32_t byte = codes.bytes[w.from[j]];
      word |= spread(byte & 15u, j) | spread(byte >> 4, j) << 16;
    }
    for (int i = 0; i < 4; ++i) out.bytes[w.to + i] = static_cast<std::uint8_t>(word >> 8 * i);
  });
  return out;
}

ByteMatrix deinterleave_sm90_codes(const ByteMatrix& interleaved) {
  ByteMatrix out = zero_bytes(interleaved.rows, interleaved.row_bytes);
  for_each_word(interleaved.rows, interleaved.row_bytes, [&](const Word& w) {
    std::uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= static_cast<std::uint32_t>(interleaved.bytes[w.to + i]) << 8 * i;
    for (std::size_t j = 0; j < 4; ++j) {
      out.bytes[w.from[j]] = static_cast<std::uint8_t>(collect(word & 0xFFFFu, j) | collect(word >> 16, j) << 4);
    }
  });
  return out;
}

ByteMatrix fold_sm90_scales(const ByteMatrix& scales) {
  check_fold(scales.rows, scales.row_bytes);
  ByteMatrix out = zero_bytes(scales.rows / kFoldRows * (scales.row_bytes / kFoldCols), kFoldBytes);
  auto to = out.bytes.begin();
  for (std::int64_t row = 0; row < scales.rows; row += kFoldRows) {
    for (std::int64_t col = 0; col < scales.row_bytes; col += kFoldCols) {
      for (std::int64_t i = 0; i < kFoldRows; ++i) {
        const std::uint8_t* from = scales.row(row + i % kSlices * kSlabRows + i / kSlices) + col;
        to = std::copy_n(from, kFoldCols, to);
      }
    }
  }
  return out;
}

ByteMatrix unfold_sm90_scales(const ByteMatrix& folded, std::int64_t rows, std::int64_t cols) {
  check_fold(rows, cols);
  if (static_cast<std::int64_t>(folded.bytes.size()) != rows * cols) {
    fail(ErrorCode::bad_input, std::to_string(folded.bytes.size()) + " bytes of folded scales",
         std::to_string(rows * cols) + " for " + std::to_string(rows) + " x " + std::to_string(cols));
  }
  ByteMatrix out = zero_bytes(rows, cols);
  auto from = folded.bytes.begin();
  for (std::int64_t row = 0; row < rows; row += kFoldRows) {
    for (std::int64_t col = 0; col < cols; col += kFoldCols) {
      for (std::int64_t i = 0; i < kFoldRows; ++i, from += kFoldCols) {
        std::copy_n(from, kFoldCols, out.row(row + i % kSlices * kSlabRows + i / kSlices) + col);
      }
    }
  }
  return out;
}

}  // namespace sluice::layout
