#include "moe/parallel.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice {
namespace {

ParallelSizes sizes(std::int32_t tp, std::int32_t ep, std::int32_t dp = 1, MoeA2a a2a = MoeA2a::none) {
  ParallelSizes s;
  s.tp = tp;
  s.ep = ep;
  s.dp = dp;
  s.dp_attention = dp > 1;
  s.a2a = a2a;
  return s;
}

std::string refusal(const ParallelSizes& s) {
  try {
    resolve(s);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    return e.what();
  }
  return "";
}

TEST(ParallelSizes, RelationsOfSglang) {
  EXPECT_NE(refusal(sizes(4, 3)).find("--tp 4 --ep 3"), std::string::npos);
  EXPECT_NE(refusal(sizes(4, 1, 3)).find("--dp 3"), std::string::npos);
  EXPECT_NE(refusal(sizes(0, 1)), "");
  EXPECT_NE(refusal(sizes(4, 0)), "");
  ParallelSizes lonely = sizes(4, 1, 2);
  lonely.dp_attention = false;
  EXPECT_NE(refusal(lonely).find("--enable-dp-attention"), std::string::npos);
  ParallelSizes dense = sizes(8, 1, 2);
  dense.dense_tp = 2;
  EXPECT_NE(refusal(dense).find("1 or tp / dp = 4"), std::string::npos);
}

TEST(ParallelSizes, ImpliedValues) {
  EXPECT_EQ(resolve(sizes(8, 2, 1, MoeA2a::alltoall)).ep, 8);
  ParallelSizes s = sizes(4, 1);
  s.dp_attention = true;
  EXPECT_FALSE(resolve(s).dp_attention);
  EXPECT_EQ(resolve(sizes(8, 1, 2)).dense_tp, 4);
}

TEST(RankPlan, CoordinatesOfEightRanks) {
  const RankPlan plan = plan_rank(resolve(sizes(8, 2, 2)), 6);
  EXPECT_EQ(plan.attention.index, 2);  // 4 to 7 are the second group of attention
  EXPECT_EQ(plan.attention.count, 4);
  EXPECT_EQ(plan.dp.index, 1);
  EXPECT_EQ(plan.experts.index, 1);  // pieces of an expert are neighbours
  EXPECT_EQ(plan.experts.count, 2);
  EXPECT_EQ(plan.expert.index, 2);
  EXPECT_EQ(plan.expert.count, 4);
}

TEST(ShareOf, WholeGroupsAsEvenAsTheyCanBe) {
  // 2880 columns in groups of 32 are 90 groups: 23, 23, 22, 22.
  EXPECT_EQ(share_of(2880, 32, {0, 4}).count(), 736);
  EXPECT_EQ(share_of(2880, 32, {1, 4}).begin, 736);
  EXPECT_EQ(share_of(2880, 32, {2, 4}).count(), 704);
  EXPECT_EQ(share_of(2880, 32, {3, 4}).end, 2880);
  // A short last group: 200 in groups of 128 are 128 and 72, and nothing for a third.
  EXPECT_EQ(share_of(200, 128, {0, 3}).count(), 128);
  EXPECT_EQ(share_of(200, 128, {1, 3}).count(), 72);
  EXPECT_EQ(share_of(200, 128, {2, 3}).count(), 0);
  EXPECT_EQ(share_of(200, 128, {2, 3}).begin, 200);
}

}  // namespace
}  // namespace sluice
