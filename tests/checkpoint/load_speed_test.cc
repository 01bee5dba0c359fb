// What makes loading fast must find what the slow way finds: bad block scales, and pages to give back.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/mapped_file.h"
#include "checkpoint/page_drops.h"
#include "checkpoint/scale_checks.h"
#include "checkpoint/scale_search.h"
#include "core/buffer.h"
#include "numerics/e8m0.h"
#include "numerics/fp8.h"
#include "test_util.h"

namespace sluice::ckpt {
namespace {

bool bad_e4m3(int code) {
  const float v = to_float(E4m3{static_cast<std::uint8_t>(code)});
  return std::isnan(v) || v < 0.0f;
}
bool bad_e8m0(int code) { return std::isnan(to_float(E8m0{static_cast<std::uint8_t>(code)})); }
bool bad_mxfp4(int code) { return bad_e8m0(code) || to_float(E8m0{static_cast<std::uint8_t>(code)}) > 0x1p125f; }
std::int64_t first_nan_e8m0(const std::byte* codes, std::int64_t count) { return first_bad_e8m0(codes, count, 254); }
std::int64_t first_bad_mxfp4(const std::byte* codes, std::int64_t count) { return first_bad_e8m0(codes, count, 252); }

struct Search {
  std::int64_t (*first)(const std::byte*, std::int64_t);
  bool (*bad)(int code);
};

class ScaleSearch : public ::testing::TestWithParam<Search> {};

// Codes that are good in both formats, and 0x80, the negative zero, which is.
std::vector<std::byte> good_scales(std::int64_t count) {
  std::vector<std::byte> scales(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    scales[i] = static_cast<std::byte>(i % 129 == 128 ? 0x80 : i % 127);
  }
  return scales;
}

TEST_P(ScaleSearch, EveryCodeAtEveryPlaceOfALineAndBehindIt) {
  const auto [first, bad] = GetParam();
  std::vector<std::byte> scales = good_scales(150);
  for (int code = 0; code < 256; ++code) {
    for (std::int64_t at = 0; at < 150; ++at) {
      const std::byte before = std::exchange(scales[at], static_cast<std::byte>(code));
      ASSERT_EQ(first(scales.data(), 150), bad(code) ? at : -1) << code << " at " << at;
      scales[at] = before;
    }
  }
}

TEST_P(ScaleSearch, TheFirstOfTwoInLongGridsOfEveryLength) {
  const Search search = GetParam();
  const std::byte nan{0xFF};  // in both formats
  for (const std::int64_t count : {0, 1, 63, 64, 65, 4095, 4096, 4097, 9000}) {
    std::vector<std::byte> scales = good_scales(count);
    EXPECT_EQ(search.first(scales.data(), count), -1) << count;
    for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 65, count - 1}) {
      if (at < 0 || at >= count) continue;
      std::vector<std::byte> faulty = scales;
      faulty[at] = faulty[count - 1] = nan;
      EXPECT_EQ(search.first(faulty.data(), count), at) << count;
      EXPECT_EQ(search.first(faulty.data(), at), -1) << "a fault behind the end";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ScaleSearch,
                         ::testing::Values(Search{first_bad_e4m3, bad_e4m3}, Search{first_nan_e8m0, bad_e8m0},
                                           Search{first_bad_mxfp4, bad_mxfp4}));

// Codes and scales of two stacked experts of 8 scales each, and of a matrix of its own.
class Grids {
 public:
  Grids() {
    for (std::size_t i = 0; i < 2; ++i) {
      codes_[i].dtype = DType::u8;
      codes_[i].data = code_bytes_.data() + 64 * i;
      codes_[i].bytes = 64;
      scales_[i].name = i == 0 ? "stacked" : "alone";
      scales_[i].shape = i == 0 ? std::vector<std::int64_t>{2, 8} : std::vector<std::int64_t>{8};
      parts_[i].tensors[static_cast<std::size_t>(Part::weight)] = &codes_[i];
    }
  }
  ScaleChecks checks() const {
    std::vector<ScaleGrid> grids;
    for (std::size_t i = 0; i < 2; ++i) {
      WeightRequest request;
      request.parts = &parts_[i];
      request.experts = i == 0 ? 2 : 0;
      grids.push_back({request, &scales_[i], scale_bytes_.data() + 16 * i, DType::e4m3});
    }
    return ScaleChecks(std::move(grids));
  }
  std::byte& scale(std::size_t i) { return scale_bytes_[i]; }
  const std::byte* code(std::size_t i) const { return code_bytes_.data() + i; }

 private:
  std::vector<std::byte> code_bytes_ = std::vector<std::byte>(128), scale_bytes_ = std::vector<std::byte>(24);
  TensorEntry codes_[2], scales_[2];
  ModuleParts parts_[2];
};

constexpr std::byte kNan{0x7F};

// The scale is wrong only while the codes are told.
TEST(ScaleChecks, CodesTellWhichScalesAreLookedThrough) {
  struct Case {
    std::size_t code, scale;
    const char* tensor;
    std::int64_t index;
  };
  for (const Case& c : {Case{0, 0, "stacked", 0}, Case{31, 7, "stacked", 7}, Case{32, 8, "stacked", 8},
                        Case{63, 15, "stacked", 15}, Case{64, 16, "alone", 0}, Case{127, 23, "alone", 7}}) {
    Grids grids;
    ScaleChecks checks = grids.checks();
    grids.scale(c.scale) = kNan;
    checks.check_codes(grids.code(c.code));
    grids.scale(c.scale) = std::byte{0};
    const ScaleChecks::Fault fault = checks.finish(nullptr);
    ASSERT_NE(fault.grid, nullptr) << c.code;
    EXPECT_EQ(fault.grid->tensor->name, c.tensor) << c.code;
    EXPECT_EQ(fault.index, c.index) << c.code;
  }
}

TEST(ScaleChecks, WhatIsLeftIsLookedThroughAtTheEndInTheOrderOfReading) {
  Grids grids;
  ScaleChecks checks = grids.checks();
  checks.check_codes(grids.code(40));
  checks.check_codes(&grids);           // codes of nothing here
  checks.check_codes(grids.code(128));  // nor these
  grids.scale(8) = kNan;                // looked through before
  grids.scale(22) = kNan;
  ThreadPool pool(2);
  const ScaleChecks::Fault fault = checks.finish(&pool);
  ASSERT_NE(fault.grid, nullptr);
  EXPECT_EQ(fault.grid->tensor->name, "alone");
  EXPECT_EQ(fault.index, 6);
  grids.scale(4) = kNan;
  EXPECT_EQ(grids.checks().finish(nullptr).index, 4);
}

TEST(JoinedRanges, NeighboursOfOneFileBecomeOne) {
  std::vector<std::byte> bytes(1000);
  const ByteRange all(bytes);
  const std::vector<ByteRange> files = {all.subspan(0, 500), all.subspan(500, 500)};
  const auto at = [&](std::size_t begin, std::size_t end) { return all.subspan(begin, end - begin); };
  // Out of order, touching, 10 apart, inside of another, and on both sides of the border of two files.
  const std::vector<ByteRange> got = joined_ranges(
      {at(300, 400), at(0, 50), at(50, 100), at(110, 200), at(120, 130), at(490, 500), at(500, 510)}, files, 10);
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (const ByteRange r : got) places.emplace_back(r.data() - bytes.data(), r.data() + r.size() - bytes.data());
  const std::vector<std::pair<std::size_t, std::size_t>> want = {{0, 200}, {300, 400}, {490, 500}, {500, 510}};
  EXPECT_EQ(places, want);
}

TEST(PageDrops, DropsAtOnceWhenManyWaitAndTheRestWhenAsked) {
  const TempFolder folder;
  const std::size_t most = PageDrops::kMostPendingBytes, bytes = most + (4u << 20);
  const MappedFile file(folder.write("big", std::string(bytes, 'x')));
  std::size_t sum = 0;
  for (std::size_t i = 0; i < bytes; i += 1024) sum += std::to_integer<std::size_t>(file.bytes()[i]);
  EXPECT_EQ(sum, bytes / 1024 * 'x');
  PageDrops drops({file.bytes()});
  const std::int64_t whole = resident_file_kb();
  drops.add(file.bytes().subspan(most / 2 + 100));
  EXPECT_GE(resident_file_kb(), whole - 1024) << "too early";
  drops.add(file.bytes().first(most / 2));
  EXPECT_LE(resident_file_kb(), whole - static_cast<std::int64_t>(most >> 10));
  for (std::size_t i = 0; i < bytes; i += 1024) sum -= std::to_integer<std::size_t>(file.bytes()[i]);
  EXPECT_EQ(sum, 0u);
  drops.add(file.bytes().first(8u << 20));
  drops.flush();
  EXPECT_LE(resident_file_kb(), whole - (7 << 10));
  ThreadPool pool(2);
  drops.add(file.bytes().subspan(8u << 20));
  drops.flush(&pool);
  EXPECT_LE(resident_file_kb(), whole - static_cast<std::int64_t>((bytes - (1u << 20)) >> 10));
}

// Anonymous memory would be zeros afterwards.
TEST(PageDrops, LeavesWhatIsInNoFile) {
  const TempFolder folder;
  const MappedFile file(folder.write("small", std::string(8192, 'x')));
  const Buffer own = host_buffer(1u << 20);
  std::memset(own.data(), 7, own.bytes());
  PageDrops drops({file.bytes()});
  drops.add({own.as<std::byte>(), own.bytes()});
  drops.flush();
  for (std::size_t i = 0; i < own.bytes(); ++i) ASSERT_EQ(own.as<char>()[i], 7) << i;
}

}  // namespace
}  // namespace sluice::ckpt
