// Which part of a model a rank holds: heads, pieces of dense FFNs, experts and pieces of each expert.
//
// Called at load time by the decoder's loader, and before that by whoever asks runners about a rank's problem or plans
// its memory. Pure functions of what every rank knows (configuration and file headers), so that all ranks agree.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/scheme.h"
#include "model/config.h"
#include "moe/parallel.h"
#include "moe/placement.h"
#include "moe/runner.h"

namespace sluice::model {

// One dimension of a weight: what the files have of it, and the part that this rank holds.
struct Extent {
  Extent(std::int64_t n) : all(n), part{0, n} {}  // NOLINT(google-explicit-constructor): the whole
  Extent(std::int64_t n, const Share& share) : all(n), part(share) {}
  // `share` of things that take `width` elements each.
  static Extent of(std::int64_t things, const Share& share, std::int64_t width) {
    return {things * width, {share.begin * width, share.end * width}};
  }
  bool whole() const { return part.count() == all; }

  std::int64_t all;
  Share part;
};

// What cuts of attention's projections must leave together, by how they are stored.
struct AttentionCuts {
  std::int64_t rows = 1;  // of q, k and v
  std::int64_t cols = 1;  // of o: a group of scales, and of inputs that are quantised together
};
AttentionCuts attention_cuts(const ckpt::WeightSource& source, std::int64_t layer, const AttentionSpec& spec);

// The heads of a rank. Key-value heads are dealt out with the query heads that use them where there are at least as
// many as pieces; else each piece repeats the one that its query heads use. Latent attention has query heads only.
struct AttentionPart {
  Share heads, kv_heads;
  bool partial = false;  // the output is a sum over pieces
  std::string whole;     // why all heads are on every rank although there are several
};
// Every head on every rank, and the reason for it, where norms span all heads or no cut leaves groups of scales whole.
AttentionPart attention_part(const AttentionSpec& spec, const AttentionCuts& cuts, const Piece& piece);
AttentionSpec spec_of_part(const AttentionSpec& spec, const AttentionPart& part);

// A rank's part of the intermediate dimension of a dense FFN whose weights are stored under these roles. Throws
// Error(unsupported) when it would be empty.
Share dense_part(const ckpt::WeightSource& source, std::int64_t layer, const DenseFfnSpec& spec, const Piece& piece);

// What the ranks of an attention group hold of the table of the embedding, which is cut between columns, and of the
// output projection, cut between rows: piece i of each. One share, the whole, where there is one rank or where some
// would get nothing.
std::vector<Share> embedding_columns(const ckpt::WeightSource& source, std::int64_t hidden, const Piece& piece);
std::vector<Share> output_rows(std::int64_t vocab, const Piece& piece);
// That of the rank with this piece.
Share own_share(const std::vector<Share>& shares, const Piece& piece);

// The piece of a shared expert: cut over all ranks where their partial sums are reduced anyway, whole at home
// otherwise.
Piece shared_piece(const RankPlan& plan);
// A rank's part of its intermediate dimension; empty where there are more ranks than groups of scales.
Share shared_part(const ckpt::WeightSource& source, std::int64_t layer, const DenseFfnSpec& spec, const Piece& piece);

// What is not as a user would expect it, one sentence each, for the log.
std::vector<std::string> rank_notes(const ModelConfig& config, const ckpt::WeightSource& source, const RankPlan& plan);

// The experts of a rank and its piece of each. `spec` is that of the whole model, `stored` the recipe that the format
// of the files asks for. Throws Error(unsupported) when the piece would be empty, naming the sizes that work.
ckpt::ExpertSlice expert_slice(const LayerSpec& spec, Recipe stored, const Placement& placement, const RankPlan& plan);

// What the runner of a rank is asked: `whole` with the rank's I and coordinates.
Problem problem_of_rank(const Problem& whole, Recipe stored, const RankPlan& plan);

}  // namespace sluice::model
