// Flags about ranks: what SGLang's names become, and which relations are refused with what would work.
#include "app/parallel_choice.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice::app {
namespace {

void expect_refused(const ParallelRequest& r, ErrorCode code, const std::vector<std::string>& parts) {
  try {
    choose_parallel(r);
    ADD_FAILURE() << "accepted: " << parts.front();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    for (const std::string& part : parts) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(ParallelChoice, OneRankIsTheDefault) {
  const ParallelChoice choice = choose_parallel({});
  EXPECT_EQ(choice.sizes.tp, 1);
  EXPECT_TRUE(choice.notes.empty());
  EXPECT_EQ(describe(choice.sizes), "");
}

TEST(ParallelChoice, SizesAreThoseOfTheFlags) {
  const ParallelSizes s =
      choose_parallel({.tp = 8, .ep = 4, .dp = 2, .enable_dp_attention = true, .dense_tp = 1}).sizes;
  EXPECT_EQ(s.tp, 8);
  EXPECT_EQ(s.ep, 4);
  EXPECT_EQ(s.dp, 2);
  EXPECT_EQ(s.dense_tp, 1);
  EXPECT_TRUE(s.dp_attention);
  EXPECT_EQ(s.a2a, MoeA2a::none);
  EXPECT_EQ(describe(s),
            "8 ranks, 2 groups of attention, experts over 4, each in 2 pieces, tokens of all groups gathered");
}

TEST(ParallelChoice, EveryTransportOfSglangIsAllToAllOverAllRanks) {
  for (const char* name : {"deepep", "mooncake", "nixl", "mori", "megamoe", "alltoall"}) {
    const ParallelChoice choice = choose_parallel({.tp = 4, .a2a = name});
    EXPECT_EQ(choice.sizes.ep, 4) << name;
    EXPECT_EQ(choice.sizes.a2a, MoeA2a::alltoall) << name;
    EXPECT_EQ(choice.notes.size(), std::string(name) == "alltoall" ? 1u : 2u) << name;
    EXPECT_NE(choice.notes.back().find("--ep becomes 4"), std::string::npos) << name;
  }
  EXPECT_TRUE(choose_parallel({.tp = 4, .ep = 4, .a2a = "alltoall"}).notes.empty());
}

TEST(ParallelChoice, OneRankHasNothingToSend) {
  const ParallelChoice choice = choose_parallel({.a2a = "deepep"});
  EXPECT_EQ(choice.sizes.a2a, MoeA2a::none);
  ASSERT_EQ(choice.notes.size(), 1u);
}

TEST(ParallelChoice, AttentionOfOneGroupIsNotDataParallel) {
  const ParallelChoice choice = choose_parallel({.tp = 2, .enable_dp_attention = true});
  EXPECT_FALSE(choice.sizes.dp_attention);
  ASSERT_EQ(choice.notes.size(), 1u);
  EXPECT_NE(choice.notes[0].find("switched off"), std::string::npos);
}

TEST(ParallelChoice, FlashinferNeedsOneRankAGroup) {
  ParallelRequest r{.tp = 4, .dp = 2, .enable_dp_attention = true, .a2a = "flashinfer"};
  expect_refused(r, ErrorCode::unsupported, {"--moe-a2a-backend flashinfer", "--dp 4", "alltoall"});
  r.dp = 4;
  EXPECT_EQ(choose_parallel(r).sizes.ep, 4);
  r.backend = "flashinfer_cutedsl";
  EXPECT_NO_THROW(choose_parallel(r));
  r.backend = "triton";
  expect_refused(r, ErrorCode::unsupported, {"triton", "flashinfer_cutlass", "deep_gemm"});
}

TEST(ParallelChoice, KernelsOfDeepGemmAndTheirGroups) {
  ParallelRequest r{.tp = 2, .a2a = "deepep_v2", .backend = "flashinfer_cutlass"};
  expect_refused(r, ErrorCode::unsupported, {"deepep_v2", "deep_gemm"});
  r = {.tp = 2, .a2a = "pplx"};
  expect_refused(r, ErrorCode::unsupported, {"pplx", "--dp 2"});
  r.dp = 2;
  r.enable_dp_attention = true;
  EXPECT_NO_THROW(choose_parallel(r));
}

TEST(ParallelChoice, RefusalsSayWhatWorks) {
  expect_refused({.tp = 4, .ep = 3}, ErrorCode::usage, {"--ep 3", "divides"});
  expect_refused({.tp = 4, .dp = 3, .enable_dp_attention = true}, ErrorCode::usage, {"--dp 3", "divides"});
  expect_refused({.tp = 4, .dp = 2}, ErrorCode::usage, {"--enable-dp-attention"});
  expect_refused({.tp = 4, .dense_tp = 2}, ErrorCode::usage, {"--moe-dense-tp-size 2", "1 or"});
  expect_refused({.tp = 4, .moe_dp = 2}, ErrorCode::unsupported, {"--moe-dp-size 2", "--moe-dp-size 1"});
  expect_refused({.tp = 4, .a2a = "pigeon"}, ErrorCode::usage, {"none, alltoall, deepep"});
  expect_refused({.tp = 4, .a2a = "ascend_fuseep"}, ErrorCode::unsupported, {"alltoall"});
  expect_refused({.deepep_mode = "fast"}, ErrorCode::usage, {"low_latency"});
}

}  // namespace
}  // namespace sluice::app
