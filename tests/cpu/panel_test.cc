// Pairs of 4-bit panels whose segments are packed in different ways: whole ones at once, and record by record those
// with blocks that need a second look.
#include "cpu/panel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "cpu/features.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kCols = 2 * kSegmentK;  // two lanes

class Fp4Pair : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!supports(detect_features(), GetParam())) GTEST_SKIP();
  }
  // Codes without zeros, scales that differ from group to group and row to row.
  void set(Format format) {
    layout_ = {1, kCols, format, false, false};
    groups_ = kCols / group();
    codes_.assign(kPairRows * kCols / 2, std::byte{0x21});
    scales_.resize(static_cast<std::size_t>(kPairRows * groups_));
    for (std::int64_t i = 0; i < std::ssize(scales_); ++i)
      scale(i / groups_, i % groups_) = static_cast<std::uint8_t>(100 + i % 23);
  }
  std::int64_t group() const { return layout_.format == Format::nvfp4 ? 16 : 32; }
  std::uint8_t& scale(std::int64_t n, std::int64_t g) { return scales_[n * groups_ + g]; }
  void zero_codes(std::int64_t n, std::int64_t g) {
    std::fill_n(codes_.begin() + (n * kCols + g * group()) / 2, group() / 2, std::byte{0x80});
  }
  void pack() {
    QuantTensor w;
    w.codes = {codes_.data(), DType::e2m1, kPairRows, kCols, kCols, 1};
    const bool nvfp4 = layout_.format == Format::nvfp4;
    w.block_scale = {scales_.data(), nvfp4 ? DType::e4m3 : DType::e8m0, 1, group(), groups_, 1};
    records_ = host_buffer(static_cast<std::size_t>(layout_.bytes()));
    const PanelSource panels[2] = {{&w, 0}, {&w, kPanelRows}};
    float outputs[kPairRows];
    pack_pair(layout_, panels, {line_kernels(GetParam()), nullptr}, {records_.as<std::byte>(), nullptr, outputs});
    finish_lines();
  }
  // The byte of a block in the records.
  unsigned stored(std::int64_t n, std::int64_t g) const {
    const std::int64_t of_record = kStoredK / group(), of_segment = kSegmentK / group();
    const StoredPlace place = layout_.place(g / of_segment * kSegmentK);
    const std::int64_t record = g % of_segment / of_record, lane_bytes = of_record * kPairRows;
    const std::int64_t at = place.bytes + record * place.lanes * layout_.bytes_of_k(kStoredK) +
                            place.lane * lane_bytes + g % of_record * kPairRows + n;
    return records_.as<std::uint8_t>()[at];
  }
  unsigned plain(std::int64_t n, std::int64_t g) {
    const unsigned code = scale(n, g);
    return layout_.format == Format::nvfp4 ? code ^ 0x78u : 254 - code;
  }

  PanelLayout layout_;
  std::int64_t groups_ = 0;
  std::vector<std::byte> codes_;
  std::vector<std::uint8_t> scales_;
  Buffer records_;
};

// In every place, the first of a segment too, whose block before it was packed with all others of its segment.
TEST_P(Fp4Pair, BlocksOfZerosHaveTheScaleOfTheBlockBefore) {
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    for (const std::int64_t n : {3, kPairRows - 1}) {
      set(format);
      const std::int64_t groups = groups_;
      for (std::int64_t zero = 1; zero < groups; ++zero) {
        set(format);
        if (format == Format::nvfp4) scale(n, zero) = 0;
        if (format == Format::mxfp4) zero_codes(n, zero);
        pack();
        for (std::int64_t i = 0; i < kPairRows * groups; ++i) {
          const std::int64_t row = i / groups, g = i % groups;
          const bool before = row == n && g == zero;
          ASSERT_EQ(stored(row, g), plain(row, before ? g - 1 : g))
              << "row " << row << " group " << g << " of " << zero;
        }
      }
    }
  }
}

// Checkpoints with such scales are refused before; weights from elsewhere come here first.
TEST_P(Fp4Pair, RefusesScalesBeyondBf16) {
  set(Format::mxfp4);
  scale(3, 1) = 252;
  EXPECT_NO_THROW(pack());
  scale(3, 1) = 253;
  EXPECT_THROW(pack(), Error);
}

INSTANTIATE_TEST_SUITE_P(All, Fp4Pair, ::testing::Values(Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16));

}  // namespace
}  // namespace sluice::cpu
