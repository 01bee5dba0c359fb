// The choice of the expert kernel from sizes (sm90/plan.cc), against the plans that were fastest when measured
// (docs/hopper-kernels.md): needs no GPU.
#include <gtest/gtest.h>

#include "cuda/sm90/launch.h"

namespace sluice::cuda::sm90 {
namespace {

constexpr std::int32_t kProcessors = 132;

Plan plan_of(Format format, std::int32_t hidden, std::int32_t intermediate, std::int32_t experts, std::int32_t k,
             std::int64_t tokens) {
  return choose_plan({format, hidden, intermediate, experts}, ActivationKind::swiglu, tokens, k, experts, kProcessors);
}

TEST(ExpertPlan, SplitsWhereFirstGemmHasFewerTilesThanMultiprocessors) {
  // Qwen3-30B in fp8: 6 row tiles an expert, 8 active experts a token.
  EXPECT_EQ(plan_of(Format::fp8_block, 2048, 768, 128, 8, 1).split, 2);   // 48 tiles
  EXPECT_EQ(plan_of(Format::fp8_block, 2048, 768, 128, 8, 2).split, 2);   // 96
  EXPECT_EQ(plan_of(Format::fp8_block, 2048, 768, 128, 8, 4).split, 1);   // 192
  EXPECT_EQ(plan_of(Format::fp8_tensor, 7168, 2048, 32, 1, 4).split, 2);  // 64
  // bf16 has half tiles in both GEMMs: 12 an expert.
  EXPECT_EQ(plan_of(Format::bf16, 2048, 768, 128, 8, 1).split, 2);  // 96
  EXPECT_EQ(plan_of(Format::bf16, 2048, 768, 128, 8, 2).split, 1);  // 192
}

TEST(ExpertPlan, TokenTileGrowsWithRowsOfAnExpert) {
  const auto tile = [](std::int64_t tokens) { return plan_of(Format::bf16, 2048, 768, 128, 8, tokens).token_tile; };
  EXPECT_EQ(tile(1), 8);
  EXPECT_EQ(tile(128), 16);  // 8 rows an expert
  EXPECT_EQ(tile(256), 32);
  EXPECT_EQ(tile(512), 64);
  EXPECT_EQ(tile(4096), 128);
}

// Instances of the kernel exist only for these.
TEST(ExpertPlan, AsksForKernelsThatExist) {
  for (const Format format : {Format::bf16, Format::fp8_block, Format::fp8_tensor}) {
    for (const ActivationKind kind : {ActivationKind::swiglu, ActivationKind::relu2}) {
      for (std::int64_t tokens = 1; tokens <= 65536; tokens = tokens * 3 / 2 + 1) {
        for (const std::int32_t intermediate : {16, 128, 2048}) {
          const Shape shape{format, 1024, intermediate, 16};
          const Plan p = choose_plan(shape, kind, tokens, 2, 16, kProcessors);
          EXPECT_TRUE(kind == ActivationKind::swiglu || p.token_tile == 16 || p.token_tile == 64);
          EXPECT_TRUE(!p.half_tiles || p.token_tile <= kMostHalfTileRows) << tokens;
          EXPECT_TRUE(p.split == 1 || (p.token_tile == 8 && extents(shape).k_blocks2 > 1)) << tokens;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cuda::sm90
