// Rows > lines of panels: every table against the byte order of cpu/isa/gemm_kernels.h, element by element.
#include <gtest/gtest.h>

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
  LineRun run() { return {rows_.data(), 0, kRecords, first_, kPitch, kStep, 0}; }
  const LineKernels& kernels() const { return line_kernels(GetParam().isa); }
  const std::byte* line(std::int64_t record, std::int64_t i) const { return first_ + record * kStep + i * kPitch; }

  std::vector<std::byte> file_ = std::vector<std::byte>(16 * kRowBytes);
  std::vector<std::byte> to_ = std::vector<std::byte>(kRecords * kStep + 256);
  std::array<const std::byte*, kPanelRows> rows_{};
  std::byte* first_ = nullptr;
};

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
