#include "core/dtype.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice {
namespace {

TEST(DType, WidthsAreThoseOfTheFormats) {
  EXPECT_EQ(dtype_bits(DType::f64), 64);
  EXPECT_EQ(dtype_bits(DType::bf16), 16);
  EXPECT_EQ(dtype_bits(DType::e4m3), 8);
  EXPECT_EQ(dtype_bits(DType::e2m1), 4);
  EXPECT_EQ(dtype_bits(DType::i64), 64);
  EXPECT_EQ(dtype_bits(DType::boolean), 8);
}

TEST(DType, NamesFollowTheOrderOfTheEnum) {
  EXPECT_EQ(dtype_name(DType::f64), "f64");
  EXPECT_EQ(dtype_name(DType::e5m2), "e5m2");
  EXPECT_EQ(dtype_name(DType::u8), "u8");
  EXPECT_EQ(dtype_name(DType::boolean), "bool");
}

TEST(DType, PackedFourBitElementsRoundUpToBytes) {
  EXPECT_EQ(dtype_bytes(DType::e2m1, 0), 0);
  EXPECT_EQ(dtype_bytes(DType::e2m1, 1), 1);
  EXPECT_EQ(dtype_bytes(DType::e2m1, 6), 3);
  EXPECT_EQ(dtype_bytes(DType::f32, 3), 12);
}

TEST(Error, MessageHasItsThreePartsAndTheExitCode) {
  try {
    fail(ErrorCode::bad_input, "model.safetensors: header has 5 bytes", "at least 8", "copy the file again");
    FAIL() << "did not throw";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "model.safetensors: header has 5 bytes; expected at least 8; copy the file again");
    EXPECT_EQ(e.exit_code(), 3);
  }
  EXPECT_THROW(fail(ErrorCode::usage, "x"), Error);
}

}  // namespace
}  // namespace sluice
