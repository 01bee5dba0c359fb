#include "dispatch/after_experts.h"

#include <gtest/gtest.h>

#include "dispatch/dispatcher.h"

namespace sluice {
namespace {

ParallelSizes sizes(std::int32_t tp, std::int32_t dp, MoeA2a a2a) {
  ParallelSizes s;
  s.tp = tp;
  s.dp = dp;
  s.dp_attention = dp > 1;
  s.a2a = a2a;
  return resolve(s);
}

// moe-runner-spec 2.7: (a) fused into the next norm, (b) a reduce-scatter follows, (c) the dp reduce-scatter is used,
// (d) on the tensor-parallel path with FP4 all-gather; all-to-all never needs it.
TEST(AfterExperts, TableOfTheSpecification) {
  struct Row {
    std::int32_t tp;
    MoeA2a a2a;
    bool fused, follows, by_dp, tp_path, fp4;
    bool sums;
  };
  constexpr MoeA2a none = MoeA2a::none, all = MoeA2a::alltoall;
  const Row rows[] = {
      {1, none, false, false, false, false, false, false},  //
      {4, none, false, false, false, false, false, true},   //
      {4, none, false, false, false, true, false, true},    //
      {4, none, true, false, false, false, false, false},   // (a)
      {4, none, false, true, false, false, false, false},   // (b)
      {4, none, false, false, true, false, false, false},   // (c)
      {4, none, false, false, false, true, true, false},    // (d)
      {4, none, false, false, false, false, true, true},    // FP4 all-gather, but not that path
      {4, all, false, false, false, false, false, false},   // never
      {4, all, false, false, false, true, false, false},    //
      {4, none, true, true, true, true, true, false},       //
  };
  for (const Row& r : rows) {
    const AfterExperts after{sizes(r.tp, 1, r.a2a), r.fused, r.follows, r.by_dp, r.tp_path, r.fp4};
    EXPECT_EQ(sums_after_experts(after), r.sums) << &r - rows;
    EXPECT_EQ(no_sum_reason(after).empty(), r.sums);
  }
}

// The kinds of dispatchers, and that the one that sums over all ranks is the one where the table says so.
TEST(AfterExperts, KindsOfDispatchers) {
  struct Row {
    std::int32_t tp, dp;
    MoeA2a a2a;
    DispatchKind kind;
  };
  const Row rows[] = {
      {1, 1, MoeA2a::none, DispatchKind::local},        {2, 1, MoeA2a::none, DispatchKind::allreduce},
      {4, 2, MoeA2a::none, DispatchKind::allgather},    {4, 4, MoeA2a::none, DispatchKind::allgather},
      {4, 1, MoeA2a::alltoall, DispatchKind::alltoall}, {4, 2, MoeA2a::alltoall, DispatchKind::alltoall}};
  for (const Row& r : rows) {
    const ParallelSizes s = sizes(r.tp, r.dp, r.a2a);
    EXPECT_EQ(dispatch_kind(s), r.kind);
    AfterExperts after;
    after.sizes = s;
    after.scattered_by_dp = r.kind == DispatchKind::allgather;
    EXPECT_EQ(sums_after_experts(after), r.kind == DispatchKind::allreduce);
  }
}

}  // namespace
}  // namespace sluice
