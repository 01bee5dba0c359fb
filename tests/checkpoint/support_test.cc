// The small parts: mapped files, name patterns, progress, the scan for NaN.
#include <algorithm>
#include <limits>

#include "checkpoint/check.h"
#include "checkpoint/loader.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/name_map.h"
#include "test_util.h"

namespace sluice::ckpt {
namespace {

TEST(NameMap, ExpandsPlaceholders) {
  EXPECT_EQ(expand("a.{L}.b.{E}.c", 12, 3), "a.12.b.3.c");
  EXPECT_EQ(expand("{L}{L}{E}", 1, 2), "112");
  EXPECT_EQ(expand("plain {X} {", 1, 2), "plain {X} {");
}

TEST(NameMap, MatchesPatterns) {
  EXPECT_TRUE(matches("a.{L}.w", "a.12.w"));
  EXPECT_FALSE(matches("a.{L}.w", "a..w"));
  EXPECT_FALSE(matches("a.{L}.w", "a.1x.w"));
  EXPECT_TRUE(matches("*.inv_freq", "model.layers.0.rotary.inv_freq"));
  EXPECT_TRUE(matches("a.*.b.{E}.*", "a.x.y.b.7.z"));
  EXPECT_FALSE(matches("a.*.b", "a.b"));
  EXPECT_TRUE(matches("mtp*", "mtp"));
  EXPECT_FALSE(matches("mtp", "mtp.x"));
  EXPECT_FALSE(matches("", "x"));
}

TEST(MappedFile, EmptyAndMovedFiles) {
  const TempFolder folder;
  EXPECT_TRUE(MappedFile(folder.write("empty", "")).bytes().empty());
  MappedFile a(folder.write("a", "content"));
  MappedFile b = std::move(a);
  EXPECT_EQ(b.bytes().size(), 7u);
  b = MappedFile(folder.write("b", "xy"));
  EXPECT_EQ(std::to_integer<char>(b.bytes()[1]), 'y');
}

TEST(MappedFile, DroppedPagesLeaveTheResidentSetAndReadTheSameAgain) {
  const TempFolder folder;
  constexpr std::size_t kBytes = 8u << 20;
  const MappedFile file(folder.write("big", std::string(kBytes, 'x')));
  prefetch_pages(file.bytes());
  const auto sum = [&] {
    std::size_t s = 0;
    for (const std::byte b : file.bytes()) s += std::to_integer<std::size_t>(b);
    return s;
  };
  EXPECT_EQ(sum(), kBytes * 'x');
  const std::int64_t before = resident_file_kb();
  drop_pages(file.bytes().subspan(1, kBytes - 2));
  EXPECT_LE(resident_file_kb(), before - 7 * 1024);
  EXPECT_EQ(sum(), kBytes * 'x');
  drop_pages({});
  prefetch_pages({});
}

// Nothing of a file that was just written, all once it was forgotten, and then but for what was read.
TEST(MappedFile, TellsWhatThePageCacheLacks) {
  constexpr std::int64_t kMegabyte = 1 << 20, kBytes = 16 * kMegabyte + 5;
  const TempFolder folder;
  const std::string path = folder.write("big", std::string(kBytes, 'x'));
  const MappedFile file(path);
  if (!file.uncached(path).empty()) GTEST_SKIP() << "a system that does not tell";
  const auto lacks = [&] {
    std::vector<std::pair<std::int64_t, std::int64_t>> places;
    for (const auto part : file.uncached(path)) {
      const std::int64_t begin = part.data() - file.bytes().data();
      places.emplace_back(begin, begin + static_cast<std::int64_t>(part.size()));
    }
    return places;
  };
  using Places = std::vector<std::pair<std::int64_t, std::int64_t>>;
  const Places wanted[] = {
      {{0, kBytes}}, {{12 * kMegabyte, kBytes}}, {{12 * kMegabyte, 14 * kMegabyte}, {15 * kMegabyte, kBytes}}};
  Places seen[3];
  for (int attempt = 0; attempt < 5 && !std::ranges::equal(seen, wanted);
       ++attempt) {  // the system may take pages back
    forget_cached(path);
    seen[0] = lacks();
    if (seen[0].empty()) GTEST_SKIP() << "a file system that keeps everything";
    read_exactly(path, 0, 12 * kMegabyte);
    seen[1] = lacks();
    read_exactly(path, 14 * kMegabyte, kMegabyte);
    seen[2] = lacks();
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(seen[i], wanted[i]);
  const MappedFile empty(folder.write("empty", ""));
  EXPECT_TRUE(empty.uncached(folder.file("empty")).empty());
  EXPECT_EQ(file.uncached(folder.file("none")).size(), 1u) << "cannot be asked";
}

TEST(LoadMeter, TellsStartProgressAndTotal) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
  LoadMeter meter([&](const Progress& p) { seen.emplace_back(p.done, p.total); }, 100);
  meter.add(40);
  meter.add(60);
  EXPECT_EQ(seen, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 100}, {40, 100}, {100, 100}}));
  EXPECT_EQ(meter.report().bytes, 100u);
  EXPECT_GE(meter.report().seconds, 0.0);
  EXPECT_DOUBLE_EQ((LoadReport{3'000'000'000, 2.0}.gb_per_second()), 1.5);
  EXPECT_EQ((LoadReport{1, 0.0}.gb_per_second()), 0.0);
  LoadMeter silent(nullptr, 1);
  silent.add(1);
}

template <class T>
NonFiniteCount count(DType type, const std::vector<T>& codes) {
  TensorEntry t;
  t.dtype = type;
  t.bytes = codes.size() * sizeof(T);
  t.data = reinterpret_cast<const std::byte*>(codes.data());
  return count_non_finite(t);
}

TEST(CountNonFinite, KnowsEveryType) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(count<float>(DType::f32, {1, std::numeric_limits<float>::max(), kNan, kInf, -kInf}),
            (NonFiniteCount{1, 2, 2}));
  EXPECT_EQ(count<double>(DType::f64, {kInf, -kNan, 1e300}), (NonFiniteCount{1, 1, 0}));
  EXPECT_EQ(count<std::uint16_t>(DType::bf16, {0x7F7F, 0x7F80, 0xFFC0, 0x0001}), (NonFiniteCount{1, 1, 1}));
  EXPECT_EQ(count<std::uint16_t>(DType::f16, {0x7BFF, 0xFC00, 0x7C01}), (NonFiniteCount{1, 1, 1}));
  // e4m3 has no infinity: 0x78..0x7E are 256..448. e5m2 has one: 0x7C. e8m0 has only 0xFF.
  EXPECT_EQ(count<std::uint8_t>(DType::e4m3, {0x7E, 0x78, 0x7F, 0xFF}), (NonFiniteCount{2, 0, 2}));
  EXPECT_EQ(count<std::uint8_t>(DType::e5m2, {0x7B, 0x7C, 0xFD}), (NonFiniteCount{1, 1, 1}));
  EXPECT_EQ(count<std::uint8_t>(DType::e8m0, {0xFE, 0x7F, 0xFF}), (NonFiniteCount{1, 0, 2}));
  EXPECT_FALSE(count<std::uint8_t>(DType::e2m1, {0xFF, 0x77}));
  EXPECT_FALSE(count<std::int32_t>(DType::i32, {-1, 0x7F800000}));
}

}  // namespace
}  // namespace sluice::ckpt
