// Which heads a rank holds: dealt out, repeated, kept together by groups of scales, or whole.
#include "model/rank_part.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::model {
namespace {

AttentionSpec spec(std::int32_t heads, std::int32_t kv_heads, std::int32_t head_dim = 64) {
  AttentionSpec a;
  a.heads = heads;
  a.kv_heads = kv_heads;
  a.head_dim = head_dim;
  return a;
}

struct Heads {
  Share q, kv;
};

std::vector<AttentionPart> parts(const AttentionSpec& a, const AttentionCuts& cuts, std::int32_t pieces) {
  std::vector<AttentionPart> all;
  for (std::int32_t i = 0; i < pieces; ++i) all.push_back(attention_part(a, cuts, {i, pieces}));
  return all;
}

void expect_heads(const std::vector<AttentionPart>& found, const std::vector<Heads>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].partial) << found[i].whole;
    EXPECT_EQ(found[i].heads.begin, expected[i].q.begin) << "rank " << i;
    EXPECT_EQ(found[i].heads.end, expected[i].q.end) << "rank " << i;
    EXPECT_EQ(found[i].kv_heads.begin, expected[i].kv.begin) << "rank " << i;
    EXPECT_EQ(found[i].kv_heads.end, expected[i].kv.end) << "rank " << i;
  }
}

void expect_whole(const std::vector<AttentionPart>& found, std::int64_t heads) {
  for (const AttentionPart& part : found) {
    EXPECT_FALSE(part.partial);
    EXPECT_FALSE(part.whole.empty());
    EXPECT_EQ(part.heads.count(), heads);
  }
}

TEST(AttentionPart, OnePieceIsWholeWithoutAReason) {
  const AttentionPart part = attention_part(spec(6, 2), {}, {});
  EXPECT_FALSE(part.partial);
  EXPECT_TRUE(part.whole.empty());
  EXPECT_EQ(part.heads.count(), 6);
  EXPECT_EQ(part.kv_heads.count(), 2);
}

TEST(AttentionPart, KeyValueHeadsAreDealtOutWithTheirQueries) {
  expect_heads(parts(spec(8, 4), {}, 2), {{{0, 4}, {0, 2}}, {{4, 8}, {2, 4}}});
  expect_heads(parts(spec(8, 4), {}, 3), {{{0, 4}, {0, 2}}, {{4, 6}, {2, 3}}, {{6, 8}, {3, 4}}});
}

TEST(AttentionPart, FewKeyValueHeadsAreRepeated) {
  expect_heads(parts(spec(8, 2), {}, 4), {{{0, 2}, {0, 1}}, {{2, 4}, {0, 1}}, {{4, 6}, {1, 2}}, {{6, 8}, {1, 2}}});
  expect_heads(parts(spec(6, 2), {}, 3), {{{0, 2}, {0, 1}}, {{2, 3}, {0, 1}}, {{3, 6}, {1, 2}}});
}

TEST(AttentionPart, MoreRanksThanHeadsKeepThemAll) { expect_whole(parts(spec(4, 2), {}, 8), 4); }

// o is cut by columns: two heads of 64 make a block of 128.
TEST(AttentionPart, BlocksOfScalesStayTogether) {
  const AttentionCuts blocks{16, 128};
  expect_heads(parts(spec(8, 4), blocks, 2), {{{0, 4}, {0, 2}}, {{4, 8}, {2, 4}}});
  expect_heads(parts(spec(8, 8), blocks, 3), {{{0, 4}, {0, 4}}, {{4, 6}, {4, 6}}, {{6, 8}, {6, 8}}});
  expect_heads(parts(spec(8, 2), blocks, 4), {{{0, 2}, {0, 1}}, {{2, 4}, {0, 1}}, {{4, 6}, {1, 2}}, {{6, 8}, {1, 2}}});
  expect_whole(parts(spec(6, 2), blocks, 2), 6);
  expect_whole(parts(spec(6, 2), blocks, 4), 6);
  expect_heads(parts(spec(6, 2, 128), blocks, 2), {{{0, 3}, {0, 1}}, {{3, 6}, {1, 2}}});
}

TEST(AttentionPart, NormsOverAllHeadsKeepThemTogether) {
  AttentionSpec a = spec(8, 8);
  a.qk_norm = QkNorm::whole_width;
  expect_whole(parts(a, {}, 2), 8);
}

// Cut over all ranks where sums over all ranks are taken anyway, whole at home otherwise.
TEST(SharedPiece, FollowsTheDispatcher) {
  ParallelSizes sizes{4, 2};
  EXPECT_EQ(shared_piece(plan_rank(resolve(sizes), 3)).index, 3);
  EXPECT_EQ(shared_piece(plan_rank(resolve(sizes), 3)).count, 4);
  sizes.a2a = MoeA2a::alltoall;
  EXPECT_TRUE(shared_piece(plan_rank(resolve(sizes), 3)).whole());
  sizes = {4, 4, 2};
  sizes.dp_attention = true;
  EXPECT_TRUE(shared_piece(plan_rank(resolve(sizes), 3)).whole());
  EXPECT_TRUE(shared_piece(plan_rank(resolve({}), 0)).whole());
}

TEST(AttentionPart, LatentAttentionHasQueryHeadsOnly) {
  AttentionSpec a = spec(5, 0, 96);
  a.mla = MlaSpec{0, 128, 64, 32, 64};
  const std::vector<AttentionPart> found = parts(a, {}, 2);
  EXPECT_EQ(found[0].heads.end, 3);
  EXPECT_EQ(found[1].heads.begin, 3);
  EXPECT_EQ(spec_of_part(a, found[1]).heads, 2);
  EXPECT_EQ(spec_of_part(a, found[1]).kv_width(), a.kv_width());
}

}  // namespace
}  // namespace sluice::model
