// Every code under every scale, at every place of the stored records: with one input of 1 and zeros elsewhere an output
// is one weight, whose value follows from the formats alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "cpu/gemm_harness.h"
#include "numerics/e2m1.h"
#include "numerics/e8m0.h"
#include "numerics/fp8.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kRows = 37;  // more than a pair of panels

// A weight and what its elements are.
struct Codes {
  std::int64_t cols = 0;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
  std::vector<float> values;
  QuantTensor weight;
};

std::uint8_t e4m3_code(std::int64_t i) {
  const auto code = static_cast<std::uint8_t>(i * 7);
  return (code & 0x7F) == 0x7F ? std::uint8_t{0x80} : code;
}

Codes fp8_codes(std::int64_t cols) {
  Codes c{cols, {}, {}, {}, {}};
  for (std::int64_t i = 0; i < kRows * cols; ++i) {
    c.codes.push_back(e4m3_code(i));
    c.values.push_back(to_float(E4m3{c.codes.back()}));
  }
  c.weight = {{c.codes.data(), DType::e4m3, kRows, cols, cols, 1}, {}, 1.0f, 1.0f};
  return c;
}

// Plain ones are positive and normal for nvfp4, and around 1 for mxfp4. Small ones of nvfp4 are zeros and subnormal
// numbers too. Others of nvfp4 are also negative, and of mxfp4 all whose products bf16 can hold.
enum class Scales { plain, small, all };

std::uint8_t scale_code(std::int64_t i, bool nvfp4, Scales scales) {
  if (!nvfp4) return static_cast<std::uint8_t>(scales == Scales::plain ? 110 + i % 30 : 3 + i * 11 % 248);
  if (scales == Scales::all) return e4m3_code(i);
  return static_cast<std::uint8_t>(scales == Scales::plain ? 8 + i * 7 % 119 : i * 7 % 127);
}

// Codes and scales count up at different speeds.
Codes fp4_codes(std::int64_t cols, bool nvfp4, Scales scales) {
  Codes c{cols, {}, {}, {}, {}};
  const std::int64_t group = nvfp4 ? 16 : 32, groups = (cols + group - 1) / group;
  c.codes.resize(static_cast<std::size_t>(kRows * cols / 2));
  for (std::int64_t i = 0; i < kRows * groups; ++i) {
    c.scales.push_back(scale_code(i, nvfp4, scales));
  }
  for (std::int64_t i = 0; i < kRows * cols; ++i) {
    const std::int64_t n = i / cols, k = i % cols;
    const auto code = static_cast<std::uint8_t>((n + 3 * k + k / group) % 16);
    c.codes[i / 2] = static_cast<std::uint8_t>(c.codes[i / 2] | code << (i % 2 * 4));
    const std::uint8_t scale = c.scales[n * groups + k / group];
    c.values.push_back(to_float(E2m1{code}) * (nvfp4 ? to_float(E4m3{scale}) : to_float(E8m0{scale})));
  }
  c.weight = {{c.codes.data(), DType::e2m1, kRows, cols, cols, 1},
              {c.scales.data(), nvfp4 ? DType::e4m3 : DType::e8m0, 1, group, groups, 1},
              1.0f,
              0.0f};
  return c;
}

class DecodeCodes : public ::testing::TestWithParam<Isa> {
 protected:
  // Inputs with a one at columns first, first + 1, ...
  static testing::Matrix ones(std::int64_t rows, std::int64_t cols, std::int64_t first) {
    testing::Matrix x = testing::random_matrix(rows, cols, DType::bf16, 1);
    std::fill(x.storage.begin(), x.storage.end(), std::byte{0});
    const Bf16 one = to_bf16(1.0f);
    for (std::int64_t t = 0; t < rows; ++t) {
      std::memcpy(x.storage.data() + 2 * (t * cols + first + t), &one, sizeof(one));
    }
    return x;
  }

  void check(const Codes& c, Recipe recipe) {
    const auto dense = make_dense(c.weight, recipe, pool_);
    // As many rows as each way of decoding takes: in registers, all lanes or one, and into a buffer.
    for (const std::int64_t rows : {1, 2, 4, 5, 6, 8, 13}) {
      if (GetParam() == Isa::scalar && rows != 13) continue;  // has one way only, and that is slow
      for (std::int64_t first = 0; first < c.cols; first += rows) {
        const std::int64_t count = std::min(rows, c.cols - first);
        const std::vector<float> y = testing::run_linear(GetParam(), pool_, *dense, ones(count, c.cols, first).view());
        for (std::int64_t i = 0; i < count * kRows; ++i) {
          const std::int64_t k = first + i / kRows, n = i % kRows;
          ASSERT_EQ(y[i], c.values[n * c.cols + k]) << "row " << n << " column " << k << " of " << rows << " inputs";
        }
      }
    }
  }

  ThreadPool pool_{1};
};

// K of two segments side by side, three, and what is not whole after them.
TEST_P(DecodeCodes, Fp8) {
  check(fp8_codes(832), Recipe::fp8_tensor);
  check(fp8_codes(562), Recipe::fp8_tensor);
}

TEST_P(DecodeCodes, Nvfp4) {
  check(fp4_codes(832, true, Scales::all), Recipe::nvfp4_w4a16);
  check(fp4_codes(832, true, Scales::small), Recipe::nvfp4_w4a16);
  check(fp4_codes(832, true, Scales::plain), Recipe::nvfp4_w4a16);
  check(fp4_codes(562, true, Scales::all), Recipe::nvfp4_w4a16);
}

TEST_P(DecodeCodes, Mxfp4) {
  check(fp4_codes(832, false, Scales::all), Recipe::mxfp4_w4a16);
  check(fp4_codes(832, false, Scales::plain), Recipe::mxfp4_w4a16);
  check(fp4_codes(562, false, Scales::plain), Recipe::mxfp4_w4a16);
}

// Blocks of zeros may have any scale: sums that are kept in units of the block at hand must not take it over.
TEST_P(DecodeCodes, BlocksOfZerosWithScalesFarAway) {
  Codes c = fp4_codes(832, false, Scales::plain);
  for (const std::int64_t row : {0, 9, 31}) {
    for (const std::int64_t block : {1, 12, 25}) {
      c.scales[static_cast<std::size_t>(row * 26 + block)] = block == 12 ? 252 : 1;
      const auto first = static_cast<std::size_t>(row * 832 + block * 32);
      for (std::size_t i = first; i < first + 32; ++i) c.values[i] = 0.0f;
      for (std::size_t i = first / 2; i < first / 2 + 16; ++i) c.codes[i] &= 0x88;  // both zeros
    }
  }
  check(c, Recipe::mxfp4_w4a16);
}

// A NaN makes its own output NaN and no other.
TEST_P(DecodeCodes, NanOfFp8) {
  Codes c = fp8_codes(320);
  c.codes[5 * 320 + 7] = 0x7F;
  c.codes[20 * 320 + 300] = 0xFF;
  const auto dense = make_dense(c.weight, Recipe::fp8_tensor, pool_);
  for (const std::int64_t rows : {1, 9}) {
    const std::vector<float> y = testing::run_linear(GetParam(), pool_, *dense, ones(rows, 320, 0).view());
    for (std::int64_t i = 0; i < rows * kRows; ++i) {
      EXPECT_EQ(std::isnan(y[i]), i % kRows == 5 || i % kRows == 20) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, DecodeCodes, ::testing::ValuesIn(testing::available_isas()),
                         [](const auto& p) { return testing::isa_label(p.param); });

struct Placed {
  std::int64_t k, bytes;
  int lanes, lane;
};

// Worked out by hand: 32 weights a k of a pair, a segment of 256 k (8192 bytes of fp8), or 128 where it is scaled.
TEST(StoredPlace, SegmentsLieSideBySide) {
  const auto check = [](PanelLayout layout, const std::vector<Placed>& expected) {
    for (const Placed& e : expected) {
      const StoredPlace p = layout.place(e.k);
      EXPECT_EQ(p.bytes, e.bytes) << layout.cols << " " << e.k;
      EXPECT_EQ(p.lanes, e.lanes) << layout.cols << " " << e.k;
      EXPECT_EQ(p.lane, e.lane) << layout.cols << " " << e.k;
    }
  };
  check({1, 512, Format::fp8}, {{0, 0, 2, 0}, {256, 0, 2, 1}});
  check({1, 768, Format::fp8}, {{0, 0, 3, 0}, {256, 0, 3, 1}, {512, 0, 3, 2}});
  check({1, 192, Format::fp8}, {{0, 0, 1, 0}});
  check({1, 320, Format::fp8}, {{0, 0, 1, 0}, {256, 8192, 1, 0}});
  check({1, 1300, Format::fp8}, {{256, 0, 2, 1}, {512, 16384, 3, 0}, {1024, 16384, 3, 2}, {1280, 40960, 1, 0}});
  check({1, 512, Format::fp8, true}, {{128, 0, 2, 1}, {256, 8192, 2, 0}, {384, 8192, 2, 1}});
  check({1, 512, Format::bf16}, {{256, 16384, 1, 0}});
}

}  // namespace
}  // namespace sluice::cpu
