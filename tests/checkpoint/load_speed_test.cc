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
                         ::testing::Values(Search{first_bad_e4m3, bad_e4m3}, Search{first_bad_e8m0, bad_e8m0}));

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
