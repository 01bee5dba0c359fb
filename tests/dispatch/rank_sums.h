// The bound within which sums over ranks must agree with one rank (numerics/tolerance.h), and how far they are.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "dispatch/rank_world.h"
#include "moe/runner_harness.h"
#include "moe/stages.h"
#include "numerics/tolerance.h"

namespace sluice::testing {

using Floats = std::vector<float>;

inline double norm(const float* row, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t c = 0; c < n; ++c) sum += static_cast<double>(row[c]) * row[c];
  return std::sqrt(sum);
}

// What one rank with all experts computes, in parts.
struct Whole {
  Floats slot_rows;                // [T * k, W]
  std::vector<double> input_norm;  // [T * k] of the intermediate
};

class IntermediateNorms final : public StageSink {
 public:
  explicit IntermediateNorms(std::vector<double>& norms) : norms_(norms) {}
  void record(std::string_view stage, const ConstTensorView& rows, const std::int64_t* route) override {
    if (stage != stage::kIntermediate) return;
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      norms_[static_cast<std::size_t>(route[i])] = norm(rows.row<float>(i), rows.cols);
    }
  }

 private:
  std::vector<double>& norms_;
};

inline Floats slot_rows(const LayerWorld& w, const Problem& problem, const ExpertWeights& weights, const Batch& batch,
                        StageSink* stages) {
  ThreadPool pool(1);
  const auto runner = w.make_runner(pool);
  RunOptions options;
  options.output = OutputKind::routes_f32;
  options.stages = stages;
  return run_batch(*runner, *runner->prepare(problem, ExpertWeights(weights)), problem, batch, options);
}

inline Whole run_whole(const LayerWorld& w, const Batch& batch) {
  Whole whole;
  whole.input_norm.resize(static_cast<std::size_t>(batch.tokens * batch.top_k));
  IntermediateNorms norms(whole.input_norm);
  whole.slot_rows = slot_rows(w, w.problem, w.weights, batch, &norms);
  return whole;
}

inline double weight_norm(const QuantTensor& weight) {
  double sum = 0.0;
  Floats row(static_cast<std::size_t>(weight.codes.cols));
  for (std::int64_t n = 0; n < weight.codes.rows; ++n) {
    decode_row(weight, n, row.data());
    sum += std::pow(norm(row.data(), weight.codes.cols), 2);
  }
  return std::sqrt(sum);
}

// [T * k] norms of a route's slot rows of all pieces, summed.
inline std::vector<double> piece_norms(const LayerWorld& w, const Batch& batch) {
  std::vector<double> norms(static_cast<std::size_t>(batch.tokens * batch.top_k));
  const std::int32_t pieces = w.sizes.tp / w.sizes.ep;
  ParallelSizes sizes = parallel_sizes(pieces, 1, 1);
  const Placement all = Placement::contiguous(w.problem.layer.routing.experts, 1);
  for (std::int32_t p = 0; p < pieces; ++p) {
    Problem problem = w.problem;
    const RankPlan plan = plan_rank(sizes, p);
    const Share share = share_of(problem.layer.intermediate, cut_group(problem.recipe), plan.expert);
    problem.layer.intermediate = share.count();
    const ExpertWeights part = part_of_rank(w.weights, all, plan, share);
    const Floats rows = slot_rows(w, problem, part, batch, nullptr);
    for (std::size_t r = 0; r < norms.size(); ++r) norms[r] += norm(&rows[r * batch.width], batch.width);
  }
  return norms;
}

// L2 bound of each token's distance from one rank.
inline std::vector<double> token_bounds(const LayerWorld& w, const Batch& batch, const Whole& whole) {
  const std::int32_t pieces = w.sizes.tp / w.sizes.ep;
  std::vector<double> per_route(whole.input_norm.size());
  const std::vector<double> of_pieces = pieces > 1 ? piece_norms(w, batch) : std::vector<double>(per_route.size());
  for (std::size_t r = 0; r < per_route.size() && pieces > 1; ++r) {
    tolerance::SlotRowPieces p;
    p.slot = recipe_info(w.problem.recipe).slot_dtype;
    p.order = {w.problem.layer.intermediate, recipe_info(w.problem.recipe).segment_k};
    p.whole_norm = norm(&whole.slot_rows[r * batch.width], batch.width);
    p.pieces_norm = of_pieces[r];
    p.input_norm = whole.input_norm[r];
    p.weight_norm = weight_norm(w.weights.down[static_cast<std::size_t>(raw(batch.ids[r]))]);
    per_route[r] = slot_row_pieces_bound(p);
  }
  std::vector<double> bounds(static_cast<std::size_t>(batch.tokens));
  for (std::size_t r = 0; r < per_route.size(); ++r) {
    const double size = pieces > 1 ? of_pieces[r] : norm(&whole.slot_rows[r * batch.width], batch.width);
    const double sum = tolerance::regrouped_sum_bound(batch.top_k * pieces + w.sizes.tp, size);
    bounds[r / static_cast<std::size_t>(batch.top_k)] += std::fabs(batch.weights[r]) * (per_route[r] + sum);
  }
  return bounds;
}

// The largest distance of a token on any rank from one rank's, in units of its bound.
inline double worst_in_bounds(const LayerWorld& w, const Batch& batch, const Floats& want, const Whole& whole) {
  const std::vector<double> bounds = token_bounds(w, batch, whole);
  const std::vector<RankResult> got = run_ranks(w, cut_batch(batch, w.sizes.dp));
  double worst = 0.0;
  for (std::int32_t rank = 0; rank < w.sizes.tp; ++rank) {
    Floats distance = part_of_output(want, w, batch, rank);
    const Floats& out = got[static_cast<std::size_t>(rank)].out;
    EXPECT_EQ(out.size(), distance.size());
    for (std::size_t i = 0; i < out.size(); ++i) distance[i] -= out[i];
    const std::int64_t first = share_of(batch.tokens, 1, plan_rank(w.sizes, rank).dp).begin;
    for (std::size_t t = 0; t < out.size() / batch.width; ++t) {
      const double ratio = norm(&distance[t * batch.width], batch.width) / bounds[static_cast<std::size_t>(first) + t];
      worst = std::isnan(ratio) ? INFINITY : std::max(worst, ratio);
    }
  }
  return worst;
}

}  // namespace sluice::testing
