// Rows stacked, padded and interleaved: small cases written out by hand.
#include <gtest/gtest.h>

#include "core/error.h"
#include "moe/layout/byte_matrix.h"

namespace sluice::layout {
namespace {

// One byte a row.
ByteMatrix column(std::vector<std::uint8_t> bytes) {
  const auto rows = static_cast<std::int64_t>(bytes.size());
  return {rows, 1, std::move(bytes)};
}
using Bytes = std::vector<std::uint8_t>;

template <class Call>
void expect_error(ErrorCode code, const std::string& part, Call call) {
  try {
    call();
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(InterleaveHalves, AlternatesGroupsOfTheTwoHalves) {
  const ByteMatrix halves = stack(column({0, 1, 2, 3, 4, 5}), column({10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(interleave_halves(halves, 1).bytes, (Bytes{0, 10, 1, 11, 2, 12, 3, 13, 4, 14, 5, 15}));
  EXPECT_EQ(interleave_halves(halves, 2).bytes, (Bytes{0, 1, 10, 11, 2, 3, 12, 13, 4, 5, 14, 15}));
  EXPECT_EQ(interleave_halves(halves, 3).bytes, (Bytes{0, 1, 2, 10, 11, 12, 3, 4, 5, 13, 14, 15}));
  EXPECT_EQ(interleave_halves(halves, 6).bytes, halves.bytes);
}

TEST(InterleaveHalves, MovesWholeRows) {
  const ByteMatrix halves{4, 3, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
  EXPECT_EQ(interleave_halves(halves, 1).bytes, (Bytes{1, 2, 3, 7, 8, 9, 4, 5, 6, 10, 11, 12}));
}

TEST(InterleaveHalves, HasAnInverse) {
  Bytes bytes(2 * 192);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7);
  for (const std::int64_t group : {1, 8, 32, 64}) {
    const ByteMatrix there = interleave_halves(column(bytes), group);
    EXPECT_NE(there.bytes, bytes);
    EXPECT_EQ(deinterleave_halves(there, group).bytes, bytes) << group;
  }
}

TEST(InterleaveHalves, RefusesOddSizesAndBrokenGroups) {
  for (const auto& call : {interleave_halves, deinterleave_halves}) {
    expect_error(ErrorCode::bad_input, "an even number of rows", [&] { call(column(Bytes(129)), 64); });
    expect_error(ErrorCode::bad_input, "half of 96 rows", [&] { call(column(Bytes(192)), 64); });
    expect_error(ErrorCode::bad_input, "groups of 0", [&] { call(column(Bytes(192)), 0); });
  }
}

TEST(Padding, AddsZerosBelowAndToTheRight) {
  const ByteMatrix m{2, 2, {1, 2, 3, 4}};
  EXPECT_EQ(pad(m, 3, 3).bytes, (Bytes{1, 2, 0, 3, 4, 0, 0, 0, 0}));
  EXPECT_EQ(pad(m, 2, 2).bytes, m.bytes);
  expect_error(ErrorCode::usage, "cut", [&] { pad(m, 1, 2); });
  expect_error(ErrorCode::usage, "cut", [&] { pad(m, 2, 1); });
}

TEST(Padding, OfEachHalfKeepsTheBoundary) {
  const ByteMatrix up = column({1, 2, 3}), gate = column({11, 12, 13});
  EXPECT_EQ(stack(pad(up, 4, 1), pad(gate, 4, 1)).bytes, (Bytes{1, 2, 3, 0, 11, 12, 13, 0}));
  expect_error(ErrorCode::bad_input, "different length", [&] { stack(up, ByteMatrix{1, 2, {1, 2}}); });
}

TEST(CodeBytes, FollowStridesAndPacking) {
  const Bytes data = {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA};
  QuantTensor packed;
  packed.codes = {data.data(), DType::e2m1, 2, 4, 8, 1};  // rows 4 bytes apart, 2 bytes long
  packed.codes.rows = 1;
  EXPECT_EQ(code_bytes(packed).bytes, (Bytes{0x10, 0x32}));
  packed.codes.row_stride = 4, packed.codes.rows = 3;
  EXPECT_EQ(code_bytes(packed).bytes, data);
  packed.codes.row_stride = 5;
  expect_error(ErrorCode::bad_input, "split a byte", [&] { code_bytes(packed); });

  QuantTensor wide;  // transposed 16-bit values
  wide.codes = {data.data(), DType::bf16, 3, 1, 1, 3};
  EXPECT_EQ(code_bytes(wide).bytes, data);
  wide.codes = {data.data(), DType::bf16, 1, 3, 3, 1};
  EXPECT_EQ(code_bytes(wide).row_bytes, 6);
  wide.codes = {data.data() + 4, DType::bf16, 3, 1, -1, 1};
  EXPECT_EQ(code_bytes(wide).bytes, (Bytes{0x98, 0xBA, 0x54, 0x76, 0x10, 0x32}));
}

TEST(ScaleBytes, OfRowsOnly) {
  const Bytes scales = {1, 2, 3, 4};
  QuantTensor t;
  t.codes = {nullptr, DType::e2m1, 2, 32, 32, 1};
  EXPECT_EQ(scale_bytes(t).row_bytes, 0);
  t.block_scale = {scales.data(), DType::e4m3, 1, 16, 2, 1};
  EXPECT_EQ(scale_bytes(t).bytes, scales);
  t.block_scale.block_rows = 2;
  expect_error(ErrorCode::unsupported, "span 2 rows", [&] { scale_bytes(t); });
}

}  // namespace
}  // namespace sluice::layout
