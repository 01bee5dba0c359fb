// Which part of a model a rank holds: sizes of a run over ranks, a rank's coordinates in them, and shares of things.
//
// Plain data and pure functions, used by loading, dispatch, the model and the commands. The relations are SGLang's
// (moe-runner-spec 7.3, 7.4): `tp` is the number of ranks in all.
#pragma once

#include <cstdint>
#include <vector>

#include "moe/ids.h"

namespace sluice {

enum class MoeA2a : std::uint8_t { none, alltoall };

struct ParallelSizes {
  std::int32_t tp = 1;        // ranks in all
  std::int32_t ep = 1;        // experts are spread over this many; each expert is cut into tp / ep pieces
  std::int32_t dp = 1;        // data-parallel groups of attention, with dp_attention
  std::int32_t dense_tp = 0;  // pieces of dense FFNs: 1 or attention's tp; 0 = attention's
  bool dp_attention = false;
  MoeA2a a2a = MoeA2a::none;
  bool operator==(const ParallelSizes&) const = default;
};

// Throws Error(usage), naming the flags and the values that would work: tp % ep, tp % dp, a2a without ep == tp, sizes
// below 1. dp_attention with dp 1 is switched off, and a2a makes ep = tp; both are returned so.
ParallelSizes resolve(ParallelSizes sizes);

// A part of `size` that a rank is of: attention heads, pieces of an expert, experts.
struct Piece {
  std::int32_t index = 0;
  std::int32_t count = 1;
  bool whole() const { return count == 1; }
};

struct RankPlan {
  ParallelSizes sizes;
  std::int32_t rank = 0;
  Piece attention;  // heads: rank % (tp / dp) of tp / dp
  Piece dp;         // group of sequences: rank / (tp / dp) of dp
  Piece experts;    // rank / (tp / ep) of ep
  Piece expert;     // piece of each expert's I: rank % (tp / ep) of tp / ep
  Piece dense;      // piece of dense FFNs
};

// `sizes` as resolve() returns them.
RankPlan plan_rank(const ParallelSizes& sizes, std::int32_t rank);

struct Share {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count() const { return end - begin; }
};

// Piece `piece` of [0, n), cut between whole groups of `group`: n / group groups (the last may be short) dealt out as
// evenly as whole groups can be, the first pieces getting one more. May be empty.
Share share_of(std::int64_t n, std::int64_t group, const Piece& piece);

}  // namespace sluice
