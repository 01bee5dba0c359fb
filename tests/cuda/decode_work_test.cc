// How the kernel for a few tokens shares out its work (sm90/decode_work.h): every unit once, whatever the sizes. Needs
// no GPU.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "cuda/sm90/decode.h"

namespace sluice::cuda::sm90 {
namespace {

constexpr std::int32_t kProcessors = 132;
constexpr std::int32_t kMostShared = 232448 - 2560;  // of a block of compute capability 9.0, less the kernel's tables

struct Model {
  std::int32_t hidden, intermediate, experts, k;
};
constexpr Model kModels[] = {
    {4096, 14336, 8, 2}, {2048, 768, 128, 8}, {4096, 1536, 128, 8}, {7168, 2048, 32, 1}, {2880, 2880, 128, 4}};
constexpr Format kFormats[] = {Format::bf16, Format::fp8_block, Format::fp8_tensor};

TEST(DecodeWork, QuotientsAreThoseOfDivision) {
  for (std::int64_t value = 1; value <= 15000; value = value < 200 ? value + 1 : value * 5 / 4 + 1) {
    const Divisor by = Divisor::of(value);
    const std::int64_t most = (std::int64_t{1} << 31) / value;  // half of what is promised
    for (std::int64_t n = 0; n < most; n = n * 9 / 8 + 1) {
      for (const std::int64_t near : {n, n / value * value, n / value * value + value - 1}) {
        EXPECT_EQ(by.quotient(static_cast<std::int32_t>(near)), near / value) << near << " / " << value;
      }
    }
  }
}

TEST(DecodeWork, SharesCoverEverythingOnce) {
  for (const std::int32_t n : {1, 2, 7, 16, 17, 131, 132, 133, 3584, 60000}) {
    for (const std::int32_t parts : {1, 2, 16, 132}) {
      std::int32_t next = 0;
      for (std::int32_t i = 0; i < parts; ++i) {
        const Range r = share_of(n, Divisor::of(parts), i);
        EXPECT_EQ(r.begin, next);
        EXPECT_GE(r.count(), n / parts);
        EXPECT_LE(r.count(), n / parts + 1);
        next = r.end;
      }
      EXPECT_EQ(next, n);
    }
  }
}

// Sums of (item, warp) are kept at item + warp: no two at one place. Warps without units are the last ones.
TEST(DecodeWork, PartialSumsHavePlacesOfTheirOwn) {
  for (const std::int32_t items : {1, 2, 3, 6, 15, 16, 17, 41, kDecodeMostItems}) {
    for (const std::int32_t k_blocks : {1, 2, 5, 6, 16, 112}) {
      std::set<std::int32_t> places;
      std::int32_t parts = 0, next = 0;
      for (std::int32_t w = 0; w < kDecodeWarps; ++w) {
        const Range mine = units_of_warp(items * k_blocks, w);
        if (mine.count() == 0) continue;
        EXPECT_EQ(mine.begin, next);
        next = mine.end;
        for (std::int32_t i = mine.begin / k_blocks; i <= (mine.end - 1) / k_blocks; ++i) {
          places.insert(i + w);
          ++parts;
        }
      }
      EXPECT_EQ(next, items * k_blocks);
      EXPECT_EQ(static_cast<std::int32_t>(places.size()), parts);
      EXPECT_LT(*places.rbegin(), items + kDecodeWarps);
    }
  }
}

TEST(DecodeWork, ModelsFitUpToThirtyTwoRoutes) {
  for (const Format format : kFormats) {
    for (const Model& m : kModels) {
      const Shape shape{format, m.hidden, m.intermediate, m.experts};
      for (std::int64_t tokens = 1; tokens <= 4; ++tokens) {
        const DecodeSizes s = decode_sizes(shape, tokens, m.k, kProcessors);
        ASSERT_GT(s.bytes, 0) << m.hidden << " T " << tokens;
        EXPECT_LE(s.bytes, kMostShared);
      }
      EXPECT_FALSE(decode_fits(shape, 33, 1, kProcessors));
      EXPECT_FALSE(decode_fits(shape, 5, 7, kProcessors));
    }
  }
}

// Where quotients would not be exact, the kernel is not used; no GPU of today has so many multiprocessors.
TEST(DecodeWork, RefusesWhatItCannotCount) {
  constexpr std::int32_t kMany = 1000;
  EXPECT_TRUE(decode_fits({Format::bf16, 256, 16384, 8}, 32, 1, kProcessors));
  EXPECT_TRUE(decode_fits({Format::bf16, 256, 16384, 8}, 2, 1, kMany));    // 4,096 items
  EXPECT_FALSE(decode_fits({Format::bf16, 256, 16384, 8}, 32, 1, kMany));  // 65,536
}

// Rows of x, later those of the intermediate, sums, terms and slots do not overlap and are aligned.
TEST(DecodeWork, PartsOfSharedMemoryDoNotOverlap) {
  for (const Format format : kFormats) {
    for (std::int32_t hidden = 16; hidden <= 8192; hidden += 16 * 37) {
      for (const std::int32_t intermediate : {16, 48, 400, 2880, 14336}) {
        for (const auto& [tokens, k] : {std::pair{1, 1}, {1, 32}, {3, 2}, {8, 4}, {32, 1}}) {
          const DecodeSizes s = decode_sizes({format, hidden, intermediate, 64}, tokens, k, kProcessors);
          if (s.bytes == 0) continue;
          const std::int32_t routes = tokens * k;
          EXPECT_GE(s.partials, tokens * s.x_stride);
          EXPECT_GE(s.partials, s.h_rows * s.h_stride);
          EXPECT_GE(s.h_rows, s.chunk_rows);
          EXPECT_GE(s.chunk_rows, 1);
          EXPECT_GE(s.terms1 - s.partials, (std::max(s.cap1, s.cap2) + kDecodeWarps) * kPartialFloats * 4);
          EXPECT_GE(s.terms2 - s.terms1, s.cap1 * kTermBytes);
          EXPECT_GE(s.slots - s.terms2, s.cap2 * kTermBytes);
          EXPECT_GE(s.ring - s.slots, routes * s.most2 * s.rows2 * 2);
          EXPECT_GE(s.barriers - s.ring, kDecodeWarps * s.units * kUnitBytes);
          EXPECT_GE(s.bytes - s.barriers, kDecodeWarps * s.units * 8);
          EXPECT_GE(s.units, kLeastUnits);
          EXPECT_LE(s.bytes, kDecodeSharedBytes);
          for (const std::int32_t at :
               {s.x_stride, s.h_stride, s.partials, s.terms1, s.terms2, s.slots, s.ring, s.barriers}) {
            EXPECT_EQ(at % 16, 0);
          }
          EXPECT_EQ(s.groups2 * s.rows2, hidden);
          EXPECT_EQ(s.groups1 * kFeatures, intermediate);
          EXPECT_GE(s.most2 * s.shares, s.groups2);
          EXPECT_GE(s.cap2, s.most2);
          EXPECT_EQ(rounds_of(2 * s.cap1 + 1, s.cap1), 3);
        }
      }
    }
  }
}

// Half groups where whole ones would leave many multiprocessors without work.
TEST(DecodeWork, OutputRowsAreSharedOutEvenly) {
  const auto rows2 = [](std::int32_t hidden) {
    return decode_sizes({Format::bf16, hidden, 768, 8}, 1, 2, kProcessors).rows2;
  };
  EXPECT_EQ(rows2(2048), 16);  // 128 groups
  EXPECT_EQ(rows2(4096), 16);  // 256
  EXPECT_EQ(rows2(2880), 8);   // 180 whole, 360 half groups
  EXPECT_EQ(rows2(7168), 16);  // 448
}

}  // namespace
}  // namespace sluice::cuda::sm90
