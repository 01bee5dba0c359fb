// Hand-computed cases of the scalar formats. The exhaustive comparison with ml-dtypes is test_scalar_types.py.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "numerics/bf16.h"
#include "numerics/e2m1.h"
#include "numerics/e8m0.h"
#include "numerics/fp16.h"
#include "numerics/fp8.h"

namespace sluice {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The conversions are usable at compile time.
static_assert(to_bf16(1.0f).bits == 0x3F80 && to_float(Bf16{0x3F80}) == 1.0f);
static_assert(to_fp16(1.0f).bits == 0x3C00 && to_float(Fp16{0x3C00}) == 1.0f);
static_assert(to_e4m3(1.0f).bits == 0x38 && to_float(E4m3{0x38}) == 1.0f);
static_assert(to_e5m2(1.0f).bits == 0x3C && to_float(E5m2{0x3C}) == 1.0f);
static_assert(to_e2m1(1.0f).bits == 2 && to_float(E2m1{2}) == 1.0f);
static_assert(to_e8m0_up(1.0f).bits == 127 && to_e8m0_floor(1.0f).bits == 127 && to_float(E8m0{127}) == 1.0f);

TEST(Bf16, RoundsTiesToEven) {
  EXPECT_EQ(to_bf16(1.0f + 0x1p-8f).bits, 0x3F80);      // tie between 1 and 1 + 2^-7
  EXPECT_EQ(to_bf16(1.0f + 3 * 0x1p-8f).bits, 0x3F82);  // tie between 1 + 2^-7 and 1 + 2^-6
  EXPECT_EQ(to_bf16(std::nextafter(1.0f + 0x1p-8f, 2.0f)).bits, 0x3F81);
  EXPECT_EQ(round_to_bf16(-257.0f), -256.0f);
}

TEST(Bf16, EndsOfTheRange) {
  EXPECT_EQ(to_bf16(FLT_MAX).bits, 0x7F80);  // rounds up to infinity
  EXPECT_EQ(to_bf16(-kInf).bits, 0xFF80);
  EXPECT_EQ(to_bf16(-0.0f).bits, 0x8000);
  EXPECT_EQ(to_bf16(0x1p-133f).bits, 0x0001);                          // smallest subnormal
  EXPECT_EQ(to_bf16(0x1p-134f).bits, 0x0000);                          // tie to even
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0xFF800001u)).bits, 0xFFC0);  // a NaN whose payload would be cut off
}

TEST(Fp16, RoundsTiesToEven) {
  EXPECT_EQ(to_fp16(1.0f + 0x1p-11f).bits, 0x3C00);
  EXPECT_EQ(to_fp16(1.0f + 3 * 0x1p-11f).bits, 0x3C02);
  EXPECT_EQ(round_to_fp16(-2049.0f), -2048.0f);
  EXPECT_EQ(round_to_fp16(2051.0f), 2052.0f);
}

TEST(Fp16, EndsOfTheRange) {
  EXPECT_EQ(to_fp16(65504.0f).bits, 0x7BFF);
  EXPECT_EQ(to_fp16(std::nextafter(65520.0f, 0.0f)).bits, 0x7BFF);
  EXPECT_EQ(to_fp16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(to_fp16(-kInf).bits, 0xFC00);
  EXPECT_EQ(to_fp16(0x1p-14f).bits, 0x0400);      // smallest normal
  EXPECT_EQ(to_fp16(0x1p-24f).bits, 0x0001);      // smallest subnormal
  EXPECT_EQ(to_fp16(0x1p-25f).bits, 0x0000);      // tie to even
  EXPECT_EQ(to_fp16(3 * 0x1p-25f).bits, 0x0002);  // tie to even
  EXPECT_EQ(to_fp16(-0x1p-26f).bits, 0x8000);
  EXPECT_EQ(to_fp16(FLT_TRUE_MIN).bits, 0x0000);
  EXPECT_EQ(to_fp16(-kNan).bits, 0xFE00);
  EXPECT_EQ(to_float(Fp16{0x7C00}), kInf);
  EXPECT_TRUE(std::isnan(to_float(Fp16{0x7C01})));
}

TEST(E4m3, ValuesOfCodes) {
  EXPECT_EQ(to_float(E4m3{0x01}), 0x1p-9f);
  EXPECT_EQ(to_float(E4m3{0x07}), 7 * 0x1p-9f);  // largest subnormal
  EXPECT_EQ(to_float(E4m3{0x08}), 0x1p-6f);      // smallest normal
  EXPECT_EQ(to_float(E4m3{0xB9}), -1.125f);
  EXPECT_EQ(to_float(E4m3{0x78}), 256.0f);  // exponent field 15 is ordinary in this variant
  EXPECT_EQ(to_float(E4m3{0x7E}), 448.0f);
  EXPECT_TRUE(std::isnan(to_float(E4m3{0x7F})));
  EXPECT_TRUE(std::isnan(to_float(E4m3{0xFF})));
}

TEST(E4m3, RoundsTiesToEven) {
  EXPECT_EQ(to_e4m3(1.0625f).bits, 0x38);         // between 1 and 1.125
  EXPECT_EQ(to_e4m3(1.1875f).bits, 0x3A);         // between 1.125 and 1.25
  EXPECT_EQ(to_e4m3(0x1p-10f).bits, 0x00);        // between 0 and 2^-9
  EXPECT_EQ(to_e4m3(3 * 0x1p-10f).bits, 0x02);    // between 2^-9 and 2^-8
  EXPECT_EQ(to_e4m3(7.5f * 0x1p-9f).bits, 0x08);  // between the largest subnormal and the smallest normal
  EXPECT_EQ(to_e4m3(-0x1p-10f).bits, 0x80);       // negative values that round to zero give -0
  EXPECT_EQ(to_e4m3(std::nextafter(0x1p-10f, 1.0f)).bits, 0x01);
}

TEST(E4m3, Overflow) {
  EXPECT_EQ(to_e4m3(464.0f).bits, 0x7E);  // tie between 448 and what would be 480: 448 is even
  EXPECT_EQ(to_e4m3_nonsat(464.0f).bits, 0x7E);
  const float above = std::nextafter(464.0f, 500.0f);
  EXPECT_EQ(to_e4m3(above).bits, 0x7E);
  EXPECT_EQ(to_e4m3_nonsat(above).bits, 0x7F);
  EXPECT_EQ(to_e4m3(-kInf).bits, 0xFE);
  EXPECT_EQ(to_e4m3_nonsat(-kInf).bits, 0xFF);
  EXPECT_EQ(to_e4m3(kNan).bits, 0x7F);
  EXPECT_EQ(to_e4m3(-kNan).bits, 0xFF);
}

TEST(E5m2, ValuesAndTies) {
  EXPECT_EQ(to_float(E5m2{0x01}), 0x1p-16f);
  EXPECT_EQ(to_float(E5m2{0x04}), 0x1p-14f);
  EXPECT_EQ(to_float(E5m2{0x7B}), 57344.0f);
  EXPECT_EQ(to_float(E5m2{0xFC}), -kInf);
  EXPECT_TRUE(std::isnan(to_float(E5m2{0x7D})));
  EXPECT_EQ(to_e5m2(1.125f).bits, 0x3C);
  EXPECT_EQ(to_e5m2(1.375f).bits, 0x3E);
  EXPECT_EQ(to_e5m2(0x1p-17f).bits, 0x00);
  EXPECT_EQ(to_e5m2(3 * 0x1p-17f).bits, 0x02);
}

TEST(E5m2, Overflow) {
  EXPECT_EQ(to_e5m2_nonsat(std::nextafter(61440.0f, 0.0f)).bits, 0x7B);
  EXPECT_EQ(to_e5m2_nonsat(61440.0f).bits, 0x7C);  // tie between 57344 (odd code) and what would be 65536
  EXPECT_EQ(to_e5m2(61440.0f).bits, 0x7B);
  EXPECT_EQ(to_e5m2(-kInf).bits, 0xFB);
  EXPECT_EQ(to_e5m2_nonsat(-kInf).bits, 0xFC);
  EXPECT_EQ(to_e5m2(-kNan).bits, 0xFE);
}

TEST(E2m1, ValuesOfCodes) {
  const float values[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (std::uint8_t code = 0; code < 8; ++code) {
    EXPECT_EQ(to_float(E2m1{code}), values[code]);
    EXPECT_EQ(to_float(E2m1{static_cast<std::uint8_t>(code | 8)}), -values[code]);
  }
  EXPECT_TRUE(std::signbit(to_float(E2m1{8})));
}

TEST(E2m1, TiesGoToTheEvenCode) {
  const float ties[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const float even[] = {0.0f, 1.0f, 1.0f, 2.0f, 2.0f, 4.0f, 4.0f};
  const float lower[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f};
  const float upper[] = {0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(to_float(to_e2m1(ties[i])), even[i]) << ties[i];
    EXPECT_EQ(to_float(to_e2m1(-ties[i])), -even[i]) << ties[i];
    EXPECT_EQ(to_float(to_e2m1_ties_down(ties[i])), lower[i]) << ties[i];
    EXPECT_EQ(to_float(to_e2m1_ties_down(-ties[i])), -lower[i]) << ties[i];
    for (const auto encode : {to_e2m1, to_e2m1_ties_down}) {
      EXPECT_EQ(to_float(encode(std::nextafter(ties[i], 0.0f))), lower[i]) << ties[i];
      EXPECT_EQ(to_float(encode(std::nextafter(ties[i], 9.0f))), upper[i]) << ties[i];
    }
  }
}

TEST(E2m1, SaturationSignAndNan) {
  for (const auto encode : {to_e2m1, to_e2m1_ties_down}) {
    EXPECT_EQ(encode(6.9f).bits, 7);
    EXPECT_EQ(encode(-1e30f).bits, 15);
    EXPECT_EQ(encode(kInf).bits, 7);
    EXPECT_EQ(encode(-0.0f).bits, 8);
    EXPECT_EQ(encode(-0.2f).bits, 8);
    EXPECT_EQ(encode(kNan).bits, 7);
    EXPECT_EQ(encode(-kNan).bits, 7);
  }
}

TEST(E2m1, EvenColumnIsTheLowNibble) {
  const std::uint8_t byte = pack_e2m1(E2m1{3}, E2m1{12});
  EXPECT_EQ(byte, 0xC3);
  EXPECT_EQ(unpack_e2m1(byte, 0).bits, 3);
  EXPECT_EQ(unpack_e2m1(byte, 1).bits, 12);
  EXPECT_EQ(unpack_e2m1(byte, 16).bits, 3);
}

TEST(E8m0, ValuesOfCodes) {
  EXPECT_EQ(to_float(E8m0{0}), 0x1p-127f);
  EXPECT_EQ(to_float(E8m0{1}), 0x1p-126f);
  EXPECT_EQ(to_float(E8m0{130}), 8.0f);
  EXPECT_EQ(to_float(E8m0{254}), 0x1p127f);
  EXPECT_TRUE(std::isnan(to_float(E8m0{255})));
}

TEST(E8m0, TwoRoundingRules) {
  EXPECT_EQ(to_e8m0_up(2.0f).bits, 128);
  EXPECT_EQ(to_e8m0_floor(2.0f).bits, 128);
  EXPECT_EQ(to_e8m0_up(std::nextafter(2.0f, 3.0f)).bits, 129);
  EXPECT_EQ(to_e8m0_floor(std::nextafter(2.0f, 3.0f)).bits, 128);
  EXPECT_EQ(to_e8m0_up(std::nextafter(2.0f, 1.0f)).bits, 128);
  EXPECT_EQ(to_e8m0_floor(std::nextafter(2.0f, 1.0f)).bits, 127);
  EXPECT_EQ(to_e8m0_up(0x1p-127f).bits, 0);
  EXPECT_EQ(to_e8m0_up(1.5f * 0x1p-127f).bits, 1);
  EXPECT_EQ(to_e8m0_floor(1.5f * 0x1p-127f).bits, 0);
}

TEST(E8m0, ValuesWithoutAPowerOfTwo) {
  for (const auto encode : {to_e8m0_up, to_e8m0_floor}) {
    EXPECT_EQ(encode(0.0f).bits, 0);
    EXPECT_EQ(encode(-0.0f).bits, 0);
    EXPECT_EQ(encode(FLT_TRUE_MIN).bits, 0);
    EXPECT_EQ(encode(FLT_MAX).bits, 254);
    EXPECT_EQ(encode(kInf).bits, 254);
    EXPECT_EQ(encode(kNan).bits, 255);
    EXPECT_EQ(encode(-1.0f).bits, 255);
  }
}

}  // namespace
}  // namespace sluice
