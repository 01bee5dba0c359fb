// The choice of the expert kernel from sizes (sm90/plan.cc), against the plans that were fastest when measured
// (docs/hopper-kernels.md): needs no GPU.
#include <gtest/gtest.h>

#include "cuda/sm90/decode.h"

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
  EXPECT_EQ(tile(512), 128);  // 32 rows, which are gathered
  EXPECT_EQ(tile(4096), 128);
  EXPECT_EQ(plan_of(Format::bf16, 2880, 2880, 128, 4, 1024).token_tile, 64);     // 32 rows, 4 routes a token
  EXPECT_EQ(plan_of(Format::fp8_block, 2048, 768, 128, 8, 512).token_tile, 64);  // tiles by halves of 64
  EXPECT_EQ(plan_of(Format::fp8_tensor, 4096, 1536, 128, 8, 512).token_tile, 128);
}

TEST(ExpertPlan, RowsAreGatheredWhereASortedImageHasManyCopies) {
  EXPECT_TRUE(plan_of(Format::bf16, 2048, 768, 128, 8, 4096).gather);
  EXPECT_TRUE(plan_of(Format::fp8_block, 2048, 768, 128, 8, 1024).gather);
  EXPECT_FALSE(plan_of(Format::bf16, 2048, 768, 128, 8, 256).gather);  // token tiles of 32
  EXPECT_FALSE(plan_of(Format::fp8_tensor, 2880, 2880, 128, 4, 4096).gather);
  EXPECT_STREQ(plan_name(plan_of(Format::bf16, 2048, 768, 128, 8, 4096)), "sm90-t128-gather");
  EXPECT_STREQ(plan_name(plan_of(Format::bf16, 4096, 14336, 8, 2, 4096)), "sm90-t128");
}

// The kernel for a few tokens where it was faster, T = 1, 2, 4 and 8; "=" was within 2 %, and either choice is fine.
TEST(ExpertPlan, FewTokensGoToOneKernelWhereItWasFaster) {
  struct Case {
    std::int32_t hidden, intermediate, experts, k;
    const char *bf16, *fp8_block, *fp8_tensor;
  };
  constexpr Case kCases[] = {{4096, 14336, 8, 2, "+...", "+...", "+..."},    // Mixtral
                             {2048, 768, 128, 8, "++..", "++..", "+++."},    // Qwen3-30B
                             {4096, 1536, 128, 8, "=...", "=...", "+=.."},   // Qwen3-235B
                             {7168, 2048, 32, 1, "++..", "++=.", "++=."},    // a rank of DeepSeek-V3
                             {2880, 2880, 128, 4, "+...", "+...", "+..."}};  // GPT-OSS
  for (const Case& c : kCases) {
    for (const Format format : {Format::bf16, Format::fp8_block, Format::fp8_tensor}) {
      const char* faster = format == Format::bf16 ? c.bf16 : format == Format::fp8_block ? c.fp8_block : c.fp8_tensor;
      for (int i = 0; i < 4; ++i) {
        if (faster[i] == '=') continue;
        const bool pays =
            decode_pays({format, c.hidden, c.intermediate, c.experts}, 1 << i, c.k, c.experts, kProcessors);
        EXPECT_EQ(pays, faster[i] == '+') << "H " << c.hidden << " T " << (1 << i) << " " << static_cast<int>(format);
      }
    }
  }
  EXPECT_FALSE(decode_pays({Format::bf16, 2048, 768, 128}, 5, 8, 128, kProcessors));  // more than 32 routes
  EXPECT_FALSE(decode_pays({Format::bf16, 16, 16, 1}, 33, 1, 1, kProcessors));
  // 2 x 3 x 1024 x 14336 bf16 are 176 MB, but 16 rows an expert go one at a time: 2.8 GB. With 2 rows they are read
  // twice.
  EXPECT_FALSE(decode_pays({Format::bf16, 1024, 14336, 2}, 16, 2, 2, kProcessors));
  EXPECT_TRUE(decode_pays({Format::bf16, 1024, 14336, 2}, 1, 2, 2, kProcessors));
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
