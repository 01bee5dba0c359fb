// Rows > lines of panels: every table against the byte order of cpu/isa/gemm_kernels.h, element by element.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <random>
#include <vector>

#include "cpu/features.h"
#include "cpu/isa/gemm_kernels.h"
#include "cpu/isa/line_kernels.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kRowBytes = 4 * 64 + 24;  // no multiple of a line
constexpr std::int64_t kRecords = 4;

struct Case {
  Isa isa;
  std::int64_t shift;  // of the target, bytes: lines that are not aligned
};

unsigned nibble(const std::byte* row, std::int64_t k) {
  const auto byte = std::to_integer<unsigned>(row[k / 2]);
  return k % 2 == 0 ? byte & 15u : byte >> 4;
}

class Lines : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr std::int64_t kPitch = 256, kStep = 16 * kPitch + 128;

  void SetUp() override {
    std::mt19937 random(7);
    for (std::byte& b : file_) b = static_cast<std::byte>(random());
    for (std::size_t r = 0; r < rows_.size(); ++r) rows_[r] = file_.data() + static_cast<std::int64_t>(r) * kRowBytes;
    void* start = to_.data();
    std::size_t space = to_.size();
    first_ = static_cast<std::byte*>(std::align(64, to_.size() - 128, start, space)) + GetParam().shift;
  }
  LineRun run() { return {file_.data(), kRowBytes, kRecords, first_, kPitch, kStep, {file_.data(), 64, 0}}; }
  const LineKernels& kernels() const { return line_kernels(GetParam().isa); }
  const std::byte* line(std::int64_t record, std::int64_t i) const { return first_ + record * kStep + i * kPitch; }

  std::vector<std::byte> file_ = std::vector<std::byte>(16 * kRowBytes);
  std::vector<std::byte> to_ = std::vector<std::byte>(kRecords * kStep + 256);
  std::array<const std::byte*, kPanelRows> rows_{};
  std::byte* first_ = nullptr;
};

// Any number of records, from any byte of the rows on, has the lines that the whole has, and no others.
TEST_P(Lines, EveryCountFromEveryRecord) {
  const auto all = [&](const LineRun& run) {
    std::fill(to_.begin(), to_.end(), std::byte{0xAB});
    kernels().nvfp4(run);
    finish_lines();
    std::vector<std::byte> nvfp4 = to_;
    std::fill(to_.begin(), to_.end(), std::byte{0xAB});
    kernels().mxfp4(run);
    finish_lines();
    nvfp4.insert(nvfp4.end(), to_.begin(), to_.end());
    return nvfp4;
  };
  const std::vector<std::byte> whole = all(run());
  for (std::int64_t first = 0; first < kRecords; ++first) {
    for (std::int64_t records = 1; first + records <= kRecords; ++records) {
      LineRun part = run();
      part.rows += 32 * first;
      part.records = records;
      part.to += first * kStep;
      const std::vector<std::byte> got = all(part);
      const auto begin = (first_ - to_.data()) + first * kStep, end = begin + (records - 1) * kStep + 7 * kPitch + 64;
      for (std::int64_t i = 0; i < std::ssize(got); ++i) {
        const std::int64_t at = i % std::ssize(to_);
        ASSERT_EQ(got[i], at >= begin && at < end ? whole[i] : std::byte{0xAB}) << first << ", " << records;
      }
    }
  }
}

// Line = k pair: [16 rows][2 k] of two bytes.
TEST_P(Lines, Bf16) {
  kernels().bf16(run());
  finish_lines();
  for (std::int64_t i = 0; i < kRecords * 16; ++i) {
    for (std::int64_t r = 0; r < 16; ++r) {
      for (std::int64_t b = 0; b < 4; ++b) ASSERT_EQ(line(i / 16, i % 16)[4 * r + b], rows_[r][4 * i + b]) << i;
    }
  }
}

// Line = four k: [4 quads of rows][2 k pairs][4 rows][2 k].
TEST_P(Lines, Fp8) {
  kernels().fp8(run());
  finish_lines();
  for (std::int64_t k = 0; k < kRecords * 64; ++k) {
    for (std::int64_t r = 0; r < 16; ++r) {
      const std::int64_t at = r / 4 * 16 + k % 4 / 2 * 8 + r % 4 * 2 + k % 2;
      ASSERT_EQ(line(k / 64, k % 64 / 4)[at], rows_[r][k]) << "k " << k << " row " << r;
    }
  }
}

// Line = eight k, as fp8 has four: k in the low half of a byte, k + 4 in the high half.
TEST_P(Lines, Nvfp4) {
  kernels().nvfp4(run());
  finish_lines();
  for (std::int64_t k = 0; k < kRecords * 64; ++k) {
    for (std::int64_t r = 0; r < 16; ++r) {
      const std::int64_t at = r / 4 * 16 + k % 4 / 2 * 8 + r % 4 * 2 + k % 2;
      const auto byte = std::to_integer<unsigned>(line(k / 64, k % 64 / 8)[at]);
      ASSERT_EQ(k % 8 < 4 ? byte & 15u : byte >> 4, nibble(rows_[r], k)) << "k " << k << " row " << r;
    }
  }
}

// Line = eight k: [16 rows][32 bits], k = 2 j + h in bits 16 h + 4 j.
TEST_P(Lines, Mxfp4) {
  EXPECT_FALSE(kernels().mxfp4(run()));
  finish_lines();
  for (std::int64_t k = 0; k < kRecords * 64; ++k) {
    for (std::int64_t r = 0; r < 16; ++r) {
      const std::int64_t bit = 16 * (k % 2) + 4 * (k % 8 / 2);
      const auto byte = std::to_integer<unsigned>(line(k / 64, k % 64 / 8)[4 * r + bit / 8]);
      ASSERT_EQ(byte >> bit % 8 & 15u, nibble(rows_[r], k)) << "k " << k << " row " << r;
    }
  }
}

// A block of 32 codes without a magnitude, wherever it is; signs do not count, and 31 zeros are no block of zeros.
TEST_P(Lines, Mxfp4SeesBlocksOfZeros) {
  for (const std::int64_t r : {0, 5, 10, 15}) {
    for (std::int64_t block = 0; block < 2 * kRecords; ++block) {
      SetUp();
      std::byte* codes = file_.data() + r * kRowBytes + block * 16;
      for (int i = 0; i < 16; ++i) codes[i] = std::byte{0x80};
      EXPECT_TRUE(kernels().mxfp4(run())) << "row " << r << " block " << block;
      codes[15] = std::byte{0x18};
      EXPECT_FALSE(kernels().mxfp4(run())) << "row " << r << " block " << block;
    }
  }
}

struct ScaleCase {
  Isa isa;
  std::int64_t shift, step;  // of the target, bytes: lines that are not aligned
};

// Block scales of a pair, of which the tables take those from kFrom on. Rows of the second panel are further apart.
class ScaleLines : public ::testing::TestWithParam<ScaleCase> {
 protected:
  static constexpr std::int64_t kFrom = 3, kMostBytes = 16, kRowBytes = kFrom + kMostBytes + 1;
  static constexpr std::byte kUntouched{0xAB};

  void SetUp() override {
    void* start = to_.data();
    std::size_t space = to_.size();
    first_ = static_cast<std::byte*>(std::align(64, to_.size() - 128, start, space)) + GetParam().shift;
  }
  void fill(std::uint8_t code) {
    for (auto& rows : file_) std::fill(rows.begin(), rows.end(), code);
    std::fill(to_.begin(), to_.end(), kUntouched);
  }
  ScaleRun run(std::int64_t records) {
    return {{file_[0].data() + kFrom, file_[1].data() + kFrom}, {kRowBytes, kRowBytes + 5}, records, first_, step()};
  }
  std::int64_t step() const { return GetParam().step; }
  std::uint8_t& code(int p, std::int64_t r, std::int64_t g) { return file_[p][r * (kRowBytes + 5 * p) + kFrom + g]; }
  // Group g of a file whose records have `groups` of them.
  unsigned stored(int p, std::int64_t r, std::int64_t g, std::int64_t groups) const {
    return std::to_integer<unsigned>(first_[g / groups * step() + g % groups * kPairRows + p * kPanelRows + r]);
  }
  std::int64_t written() const {
    return std::count_if(to_.begin(), to_.end(), [](std::byte b) { return b != kUntouched; });
  }
  // Finished, since lines may go past the cache.
  bool nvfp4(std::int64_t records) {
    const bool plain = line_kernels(GetParam().isa).nvfp4_scales(run(records));
    finish_lines();
    return plain;
  }
  bool mxfp4(std::int64_t records, bool& far) {
    const bool plain = line_kernels(GetParam().isa).mxfp4_scales(run(records), far);
    finish_lines();
    return plain;
  }

  std::array<std::vector<std::uint8_t>, 2> file_ = {std::vector<std::uint8_t>(kPanelRows * kRowBytes),
                                                    std::vector<std::uint8_t>(kPanelRows*(kRowBytes + 5))};
  std::vector<std::byte> to_ = std::vector<std::byte>(4 * 256 + 256);
  std::byte* first_ = nullptr;
};

TEST_P(ScaleLines, EveryPlaceOfEveryCount) {
  for (const bool nv : {true, false}) {
    const std::int64_t groups = nv ? 4 : 2;
    for (std::int64_t records = 1; records <= 4; ++records) {
      fill(0xFF);  // of what is not asked for: NaN in both formats
      for (std::int64_t i = 0; i < 2 * kPanelRows * groups * records; ++i) {
        const std::int64_t g = i / kPairRows, r = i % kPairRows;
        code(static_cast<int>(r / kPanelRows), r % kPanelRows, g) =
            static_cast<std::uint8_t>(nv ? 8 + (17 * r + 5 * g) % 119 : 87 + (17 * r + 5 * g) % 81);
      }
      bool far = false;
      ASSERT_TRUE(nv ? nvfp4(records) : mxfp4(records, far));
      EXPECT_FALSE(far);
      EXPECT_LE(written(), kPairRows * groups * records);
      for (std::int64_t i = 0; i < kPairRows * groups * records; ++i) {
        const std::int64_t g = i / kPairRows, r = i % kPanelRows;
        const int p = static_cast<int>(i % kPairRows / kPanelRows);
        const unsigned c = code(p, r, g);
        // (1 + m / 8) * 2^(e - 7) is stored as (1 + m / 8) * 2^(8 - E), and 2^(c - 127) as 2^(127 - E).
        const unsigned want = nv ? (15 - c / 8) * 8 + c % 8 : 254 - c;
        ASSERT_EQ(stored(p, r, g, groups), want)
            << "panel " << p << " row " << r << " group " << g << " of " << records;
      }
    }
  }
}

// One code among plain ones, in all corners of what is looked at: of a part of a segment, and of a whole one.
TEST_P(ScaleLines, EveryCodeIsPlainFarOrNeedsASecondLook) {
  for (const std::int64_t records : {3, 4}) {
    for (unsigned c = 0; c < 256; ++c) {
      for (const std::int64_t r : {0, 4, 9, 15, 16, 22, 27, 31}) {
        const int p = static_cast<int>(r / kPanelRows);
        for (const bool last : {false, true}) {
          fill(0x40);
          code(p, r % kPanelRows, last ? 4 * records - 1 : 0) = static_cast<std::uint8_t>(c);
          const bool plain = c >= 0x08 && c < 0x7F;  // neither zero nor denormal, negative or NaN
          ASSERT_EQ(nvfp4(records), plain) << c;
          fill(127);
          code(p, r % kPanelRows, last ? 2 * records - 1 : 0) = static_cast<std::uint8_t>(c);
          bool far = false;
          ASSERT_EQ(mxfp4(records, far), c <= 127 + 125) << c;
          EXPECT_TRUE(c > 127 + 125 || far == (c < 127 - 40 || c > 127 + 40)) << c;
        }
      }
    }
  }
}

// Far codes behind the last one that is wanted are nobody's business.
TEST_P(ScaleLines, FarCodesBehindASegmentDoNotCount) {
  fill(200);
  for (std::int64_t i = 0; i < 8 * kPairRows; ++i) {
    code(static_cast<int>(i % 2), i / 2 % kPanelRows, i / kPairRows) = 127;
  }
  bool far = false;
  ASSERT_TRUE(mxfp4(4, far));
  EXPECT_FALSE(far);
}

std::vector<Isa> supported() {
  std::vector<Isa> out;
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16}) {
    if (supports(detect_features(), isa)) out.push_back(isa);
  }
  return out;
}

std::vector<ScaleCase> scale_cases() {
  std::vector<ScaleCase> out;
  for (const Isa isa : supported()) {
    for (const ScaleCase c : {ScaleCase{isa, 0, 192}, {isa, 16, 192}, {isa, 0, 200}}) out.push_back(c);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, ScaleLines, ::testing::ValuesIn(scale_cases()));

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16}) {
    if (!supports(detect_features(), isa)) continue;
    for (const std::int64_t shift : {0, 3}) out.push_back({isa, shift});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, Lines, ::testing::ValuesIn(cases()));

}  // namespace
}  // namespace sluice::cpu
