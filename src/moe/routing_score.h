// Pieces of routing that work on one row of scores: cleaning of logits, scoring, and the k largest.
//
// Called by routing.cc only. Pure functions on the caller's memory: thread-safe, no allocation. All arithmetic is fp32
// in the order written in routing_score.cc.
#pragma once

#include <cstdint>

#include "moe/routing.h"

namespace sluice {

// out[e] = logits[e] made safe: NaN counts as -inf, +inf as the largest finite number; a row without anything above
// -inf counts as a row of zeros.
void clean_logits(const float* logits, std::int32_t experts, float* out);

// scores[e] of clean logits; never NaN. softmax: exp(x - max) / sum, the sum in ascending order of e.
void score(Scoring scoring, const float* logits, std::int32_t experts, float* scores);

// The experts to choose from: all of them, or those of groups with keep[group] set.
struct CandidateGroups {
  const bool* keep = nullptr;  // nullptr = all
  std::int32_t group_size = 0;
};

// Ids of the k largest keys in descending order, equal keys by ascending id; a NaN key counts as -inf. There are at
// least k candidates. Cost: O(experts) for typical rows, O(experts * k) when keys ascend.
void largest(const float* keys, std::int32_t experts, const CandidateGroups& candidates, std::int32_t k,
             LogicalId* ids);

}  // namespace sluice
