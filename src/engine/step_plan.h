// What one step computes: plain data, made by the scheduler and executed as it stands, by this rank or by others.
//
// A plan is complete: whoever has the weights and a KV cache with the same blocks can execute it. Rank 0 makes it,
// the first rank of each group samples; an idle group executes an empty one. to_bytes is what is broadcast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::engine {

// What the first rank of a group does with one sequence's rows of logits.
struct PlanSequence {
  std::uint64_t request = 0;
  std::int32_t first_token = 0;   // index into token_ids
  std::int32_t tokens = 0;        // positions computed in this step
  std::int32_t sample_row = -1;   // row of the logits that gives the next token; -1 = none
  std::int32_t first_score = 0;   // rows of the logits whose next token's log-probability is wanted
  std::int32_t scores = 0;        // they belong to the first `scores` tokens from `score_offset` on
  std::int32_t score_offset = 0;  // in tokens, within this step's tokens of the sequence

  bool operator==(const PlanSequence&) const = default;
};

struct StepPlan {
  std::uint64_t number = 0;
  std::int32_t max_blocks = 0;            // width of block_table
  std::int64_t max_context = 0;           // longest context after this step
  std::int32_t sample_rows = 0;           // the first rows of the logits are sampled, the others scored
  std::vector<std::int32_t> token_ids;    // [T]
  std::vector<std::int32_t> positions;    // [T]
  std::vector<std::int32_t> query_start;  // [S + 1]
  std::vector<std::int32_t> block_table;  // [S, max_blocks], padded with 0
  std::vector<std::int32_t> logit_rows;   // [n] indices into token_ids
  std::vector<PlanSequence> sequences;    // [S]

  std::int64_t tokens() const { return static_cast<std::int64_t>(token_ids.size()); }
  bool operator==(const StepPlan&) const = default;
};

// Little-endian, with a magic number and a version.
std::vector<std::byte> to_bytes(const StepPlan& plan);

// Throws Error(bad_input) when the bytes are no plan: wrong magic, version or length, or lists that contradict each
// other.
StepPlan plan_from_bytes(std::span<const std::byte> bytes);

// Throws Error(bad_input) when lists have lengths or contain indices that do not fit each other.
void validate(const StepPlan& plan);

}  // namespace sluice::engine
