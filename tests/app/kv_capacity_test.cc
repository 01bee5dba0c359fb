// The default size of the KV cache, case by case.
#include "app/kv_capacity.h"

#include <gtest/gtest.h>

namespace sluice::app {
namespace {

constexpr std::int64_t kGb = 1'000'000'000;

KvDemand small() { return {16, 1000, 16, 2048, 10 * kGb, 0}; }

TEST(KvCapacity, EveryRequestCanHaveItsWholeContext) {
  const KvCapacity c = choose_kv_capacity(small());
  EXPECT_EQ(c.tokens, 16 * 1008);
  EXPECT_EQ(c.reason, "16 whole contexts");
}

TEST(KvCapacity, HalfOfTheFreeMemoryUnlessAskedOtherwise) {
  KvDemand d = small();
  d.free_bytes = 20'480'000;  // half of it holds 5000 tokens
  EXPECT_EQ(choose_kv_capacity(d).tokens, 4992);
  EXPECT_EQ(choose_kv_capacity(d).reason, "50 % of 0.0 GB free");
  d.fraction = 0.75;
  EXPECT_EQ(choose_kv_capacity(d).tokens, 7488);  // 7500 in whole blocks
}

TEST(KvCapacity, NotMoreThanEightGibibytesUnasked) {
  KvDemand d{512, 40960, 16, 98304, 400 * kGb, 0};
  EXPECT_EQ(choose_kv_capacity(d).tokens, (std::int64_t{8} << 30) / 98304 / 16 * 16);
  EXPECT_NE(choose_kv_capacity(d).reason.find("--max-total-tokens"), std::string::npos);
  d.fraction = 0.5;
  EXPECT_EQ(choose_kv_capacity(d).tokens, 200 * kGb / 98304 / 16 * 16);
  d.fraction = 0;
  d.context = 262144;  // one context is more than that
  EXPECT_EQ(choose_kv_capacity(d).tokens, 262144);
}

TEST(KvCapacity, WithoutKnowledgeOneContextAndNeverNothing) {
  KvDemand d = small();
  d.free_bytes = 0;
  EXPECT_EQ(choose_kv_capacity(d).tokens, 1008);
  d.free_bytes = 1;
  EXPECT_EQ(choose_kv_capacity(d).tokens, 16);
}

TEST(KvCapacity, TheSystemSaysWhatIsFree) {
  EXPECT_GT(free_memory_bytes(), std::int64_t{1} << 20);
  EXPECT_LT(free_memory_bytes(), std::int64_t{1} << 50);
}

}  // namespace
}  // namespace sluice::app
