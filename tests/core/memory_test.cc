#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "core/buffer.h"
#include "core/error.h"
#include "core/tensor.h"
#include "core/workspace.h"

namespace sluice {
namespace {

TEST(Buffer, HostMemoryIsZeroedAndMovesWithItsOwner) {
  Buffer a = host_buffer(5 << 20);
  EXPECT_EQ(a.bytes(), std::size_t{5} << 20);
  EXPECT_EQ(a.as<std::uint8_t>()[(5 << 20) - 1], 0);
  void* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move): that is the contract
  b = Buffer();
  EXPECT_EQ(b.data(), nullptr);
}

TEST(Buffer, AnImpossibleSizeIsAnErrorOfResources) {
  try {
    host_buffer(std::size_t{1} << 60);
    FAIL() << "did not throw";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::resources);
    EXPECT_NE(std::string(e.what()).find("1152921504606846976"), std::string::npos);
  }
}

bool is_mapped(const std::byte* page) {
  unsigned char resident = 0;
  return mincore(const_cast<std::byte*>(page), 1, &resident) == 0;
}

// Sizes below, at and above huge pages: all bytes are there, memory begins where a huge page may, and nothing of it,
// nor of what was mapped to find that place, stays behind.
TEST(Buffer, LargeOnesBeginAtAHugePageAndAreUnmappedWhole) {
  constexpr std::size_t kPage = 4096, kHuge = 2u << 20;
  for (const std::size_t bytes : {kHuge - 1, kHuge, kHuge + 1, 2 * kHuge - kPage, 3 * kHuge, 5 * kHuge + 7}) {
    const std::byte* first = nullptr;
    {
      const Buffer buffer = host_buffer(bytes);
      first = buffer.as<std::byte>();
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % (bytes >= kHuge ? kHuge : kPage), 0u) << bytes;
      for (std::size_t i = 0; i < bytes; i += 97) ASSERT_EQ(buffer.as<char>()[i], 0) << i << " of " << bytes;
      std::memset(buffer.data(), 1, bytes);
      EXPECT_TRUE(is_mapped(first + (bytes - 1) / kPage * kPage));
    }
    for (std::size_t at = 0; at < bytes; at += kPage) ASSERT_FALSE(is_mapped(first + at)) << at << " of " << bytes;
  }
}

// Whether the page is in memory, which a page of a new buffer is once it was written, or its huge page taken.
bool is_resident(const std::byte* page) {
  unsigned char resident = 0;
  return mincore(const_cast<std::byte*>(page), 1, &resident) == 0 && (resident & 1) != 0;
}

// What was written stays, what was not is zero, and neither pages that were not asked for nor a last part that is no
// whole huge page are taken.
TEST(Buffer, TakingHugePagesChangesNothingInThem) {
  constexpr std::size_t kPage = 4096, kHuge = 2u << 20, kBytes = 4 * kHuge - 1;
  const Buffer buffer = host_buffer(kBytes);
  auto* const bytes = buffer.as<std::byte>();
  bytes[kHuge - 1] = bytes[kHuge] = std::byte{7};
  take_huge_pages(buffer, kHuge - 1, 2 * kHuge);
  EXPECT_FALSE(is_resident(bytes + 2 * kHuge));
  take_huge_pages(buffer, 3 * kHuge, kBytes);
  EXPECT_FALSE(is_resident(bytes + 4 * kHuge - kPage)) << "beyond the last whole huge page";
  take_huge_pages(buffer, 0, 0);
  take_huge_pages(Buffer(), 0, 0);
  for (std::size_t i = 0; i < kBytes; ++i) {
    ASSERT_EQ(bytes[i], i == kHuge - 1 || i == kHuge ? std::byte{7} : std::byte{0}) << i;
  }
}

// The place that is used first decides in which order Linux clears a huge page (buffer.h); small pages show which it
// is.
TEST(Buffer, HugePagesAreTakenFromTheirEnd) {
  constexpr std::size_t kPage = 4096, kHuge = 2u << 20;
  const Buffer buffer = host_buffer(3 * kHuge);
  const auto* const bytes = buffer.as<std::byte>();
  constexpr int kPopulateWrite = 23;
  if (madvise(buffer.data(), kPage, kPopulateWrite) != 0) GTEST_SKIP() << "a system without MADV_POPULATE_WRITE";
  madvise(buffer.data(), buffer.bytes(), MADV_NOHUGEPAGE);
  take_huge_pages(buffer, 2 * kHuge - 1, 2 * kHuge + 1);
  for (const std::size_t page : {kHuge, 2 * kHuge}) {
    EXPECT_FALSE(is_resident(bytes + page));
    EXPECT_TRUE(is_resident(bytes + page + kHuge - kPage));
  }
}

TEST(Buffer, SizesThatNoSumHoldsAreErrors) {
  EXPECT_THROW(host_buffer(std::numeric_limits<std::size_t>::max()), Error);
  EXPECT_THROW(host_buffer(std::numeric_limits<std::size_t>::max() - (1u << 20)), Error);
}

TEST(Workspace, PiecesAreAlignedAndDisjoint) {
  alignas(64) std::byte memory[1024];
  Workspace w(memory, sizeof(memory));
  auto* a = w.take<float>(3);
  auto* b = w.take<std::int64_t>(5);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % Workspace::kAlignBytes, 0u);
  EXPECT_EQ(reinterpret_cast<std::byte*>(b) - reinterpret_cast<std::byte*>(a), 64);
}

TEST(Workspace, ScopeGivesBackAndTooMuchIsAnError) {
  alignas(64) std::byte memory[256];
  Workspace w(memory, sizeof(memory));
  void* first = nullptr;
  {
    const Workspace::Scope scope(w);
    first = w.take_bytes(200);
    EXPECT_THROW(w.take_bytes(1), Error);
  }
  EXPECT_EQ(w.take_bytes(256), first);
}

TEST(TensorView, RowsFollowTheStride) {
  float data[12];
  for (int i = 0; i < 12; ++i) data[i] = static_cast<float>(i);
  const TensorView v{data, DType::f32, 3, 2, 4};
  EXPECT_EQ(v.row<float>(2)[1], 9.0f);
  const ConstTensorView c = v;
  EXPECT_EQ(c.row<float>(1)[0], 4.0f);
  EXPECT_FALSE(TensorView{});
}

}  // namespace
}  // namespace sluice
