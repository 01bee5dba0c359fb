#include "moe/parallel.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/rounding.h"

namespace sluice {
namespace {

void check(bool ok, const std::string& what, const std::string& expected) {
  if (!ok) fail(ErrorCode::usage, what, expected);
}

std::string sized(const char* flag, std::int32_t n) { return std::string(flag) + " " + std::to_string(n); }

}  // namespace

ParallelSizes resolve(ParallelSizes s) {
  check(s.tp >= 1, sized("--tp", s.tp), "at least 1");
  check(s.ep >= 1, sized("--ep", s.ep), "at least 1");
  check(s.dp >= 1, sized("--dp", s.dp), "at least 1");
  if (s.dp == 1) s.dp_attention = false;
  check(s.dp == 1 || s.dp_attention, sized("--dp", s.dp) + " without --enable-dp-attention",
        "both: groups of ranks without data-parallel attention would be runs of their own");
  check(s.tp % s.dp == 0, sized("--tp", s.tp) + " " + sized("--dp", s.dp), "a --dp that divides --tp");
  if (s.a2a == MoeA2a::alltoall) s.ep = s.tp;
  check(s.tp % s.ep == 0, sized("--tp", s.tp) + " " + sized("--ep", s.ep), "an --ep that divides --tp");
  const std::int32_t attention = s.tp / s.dp;
  if (s.dense_tp == 0) s.dense_tp = attention;
  check(s.dense_tp == 1 || s.dense_tp == attention, sized("--moe-dense-tp-size", s.dense_tp),
        "1 or tp / dp = " + std::to_string(attention));
  return s;
}

RankPlan plan_rank(const ParallelSizes& sizes, std::int32_t rank) {
  const std::int32_t attention = sizes.tp / sizes.dp;
  const std::int32_t pieces = sizes.tp / sizes.ep;
  RankPlan plan;
  plan.sizes = sizes;
  plan.rank = rank;
  plan.attention = {rank % attention, attention};
  plan.dp = {rank / attention, sizes.dp};
  plan.experts = {rank / pieces, sizes.ep};
  plan.expert = {rank % pieces, pieces};
  plan.dense = sizes.dense_tp == 1 ? Piece{} : plan.attention;
  return plan;
}

Share share_of(std::int64_t n, std::int64_t group, const Piece& piece) {
  const std::int64_t groups = ceil_div(n, group);
  const std::int64_t each = groups / piece.count;
  const std::int64_t more = groups % piece.count;  // the first `more` pieces have one group more
  const std::int64_t first = piece.index * each + std::min<std::int64_t>(piece.index, more);
  const std::int64_t last = first + each + (piece.index < more ? 1 : 0);
  return {std::min(n, first * group), std::min(n, last * group)};
}

}  // namespace sluice
