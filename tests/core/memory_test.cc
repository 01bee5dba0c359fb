#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

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
