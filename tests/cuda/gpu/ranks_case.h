// A random layer cut over ranks, for the tests that run each rank's slice on the one GPU: what a rank holds, what one
// rank with everything computes, and how far the two may be apart. Owned by the test; one thread at a time but for
// what is const.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/rank_parts.h"
#include "gpu/facade.h"
#include "gpu/layer_case.h"
#include "moe/runner_harness.h"
#include "numerics/tolerance.h"

namespace sluice::gpu_tests {

using Floats = std::vector<float>;

// Faults put in on purpose: a comparison that does not see them proves nothing.
enum class RankFault : std::uint8_t {
  none,
  neighbours_experts,  // a rank computes with the weights of the next slots
  bias_on_every_piece,
  columns_off_by_a_group,  // down's columns are not those of gate's and up's rows
  one_rank_missing,
  slots_out_of_order,   // summed at home from the last slot
  skipped_id_computed,  // -1 goes to expert 0
};

// The slice of rank `r`, prepared on the GPU. `problem` is the rank's.
struct RankSlice {
  RankPlan plan;
  SlotRange slots;
  Share share;
  Problem problem;
  ExpertWeights weights;
  std::unique_ptr<PreparedExperts> experts;
};

inline ExpertWeights weights_of_rank(const ExpertWeights& all, const Placement& placement, const RankPlan& plan,
                                     const Share& share, RankFault fault) {
  ExpertWeights part = sluice::testing::part_of_rank(all, placement, plan, share);
  if (fault == RankFault::neighbours_experts && plan.experts.index == 1) {
    RankPlan other = plan;
    other.experts.index = 0;
    const ExpertWeights wrong = sluice::testing::part_of_rank(all, placement, other, share);
    part.down.front() = wrong.down.front();
  }
  if (fault == RankFault::bias_on_every_piece) {
    RankPlan first = plan;
    first.expert.index = 0;
    part.down_bias = sluice::testing::part_of_rank(all, placement, first, share).down_bias;
  }
  if (fault == RankFault::columns_off_by_a_group && share.begin > 0) {
    const std::int64_t group = share.begin % 128 == 0 ? 128 : 16;
    part.down = sluice::testing::part_of_rank(all, placement, plan, {share.begin - group, share.end - group}).down;
  }
  return part;
}

class LayerOverRanks {
 public:
  explicit LayerOverRanks(const LayerCase& layer)
      : spec(layer), problem(layer.problem()), weights(layer.weights()), whole_(prepare(problem, weights)) {}

  std::unique_ptr<PreparedExperts> prepare(const Problem& p, const ExpertWeights& w) const {
    return gpu.prepare(p, ExpertWeights(w));
  }

  RankSlice slice(const ParallelSizes& sizes, std::int32_t rank, RankFault fault = RankFault::none) const {
    RankSlice s = cut(sizes, rank, fault);
    s.experts = prepare(s.problem, s.weights);
    return s;
  }

  // The same without the weights on the GPU.
  RankSlice cut(const ParallelSizes& sizes, std::int32_t rank, RankFault fault = RankFault::none) const {
    RankSlice s;
    s.plan = plan_rank(sizes, rank);
    const Placement placement = Placement::contiguous(spec.experts, s.plan.experts.count);
    s.slots = placement.of_rank(s.plan.experts.index);
    s.share = share_of(spec.intermediate, cut_group(spec.recipe), s.plan.expert);
    s.problem = problem;
    s.problem.layer.intermediate = s.share.count();
    s.problem.parallel = {s.plan.experts.count, s.plan.experts.index, s.plan.expert.count, s.plan.expert.index};
    s.weights = weights_of_rank(weights, placement, s.plan, s.share, fault);
    return s;
  }

  Floats run(const RankSlice& s, const sluice::testing::Batch& batch, sluice::testing::OutputKind output) const {
    return run(*s.experts, s.problem, batch, output, s.slots);
  }
  Floats run_whole(const sluice::testing::Batch& batch, sluice::testing::OutputKind output) const {
    return run(*whole_, problem, batch, output, {0, spec.experts});
  }

  LayerCase spec;
  Problem problem;
  ExpertWeights weights;
  Facade gpu;

 private:
  Floats run(const PreparedExperts& experts, const Problem& p, const sluice::testing::Batch& batch,
             sluice::testing::OutputKind output, SlotRange slots) const {
    sluice::testing::RunOptions options;
    options.output = output;
    options.slots = slots;
    return sluice::testing::run_batch(gpu, experts, p, batch, options);
  }

  std::unique_ptr<PreparedExperts> whole_;
};

inline double row_norm(const Floats& rows, std::int64_t row, std::int64_t width) {
  double sum = 0.0;
  for (std::int64_t c = 0; c < width; ++c) sum += std::pow(static_cast<double>(rows[row * width + c]), 2);
  return std::sqrt(sum);
}

// The largest distance of a token in units of its bound; infinity for a NaN, and for zeros that are none.
inline double worst_in_bounds(const Floats& got, const Floats& want, const std::vector<double>& bounds) {
  const std::size_t width = bounds.empty() ? 0 : want.size() / bounds.size();
  double worst = got.size() == want.size() ? 0.0 : INFINITY;
  for (std::size_t t = 0; t < bounds.size() && worst < INFINITY; ++t) {
    double sum = 0.0;
    for (std::size_t c = t * width; c < (t + 1) * width; ++c) sum += std::pow(double{got[c]} - want[c], 2);
    if (sum == 0.0) continue;
    const double ratio = std::sqrt(sum) / bounds[t];
    worst = std::isfinite(ratio) ? std::max(worst, ratio) : INFINITY;
  }
  return worst;
}

// L2 bound of each token from `norms` [T * k] of slot rows: every row is rounded to bf16 once where it is whole and
// once a piece where it is cut (`pieces` > 1; the norms of the pieces are added up then), and fp32 sums are regrouped.
// A quarter more is for GEMM2's sums, which are cut too. Where each piece has an input scale of its own for GEMM2, its
// codes are others: a half step of e4m3 more.
inline std::vector<double> token_bounds(const LayerCase& c, const sluice::testing::Batch& batch,
                                        const Floats& whole_rows, const std::vector<double>& piece_norms,
                                        std::int32_t pieces) {
  constexpr double kHalfUlp = 0x1p-9, kHalfCode = 0x1p-4, kMargin = 1.25;
  const bool other_codes = c.recipe == Recipe::fp8_tensor && !c.format.static_input;
  std::vector<double> bounds(static_cast<std::size_t>(batch.tokens));
  for (std::int64_t r = 0; r < batch.tokens * batch.top_k; ++r) {
    const double whole = row_norm(whole_rows, r, batch.width);
    const double parts = pieces > 1 ? piece_norms[static_cast<std::size_t>(r)] : whole;
    const double rounding =
        pieces > 1 ? kMargin * kHalfUlp * (whole + parts) + (other_codes ? kHalfCode * whole : 0.0) : 0.0;
    const double sums = tolerance::regrouped_sum_bound(2 * batch.top_k * pieces, parts);
    bounds[static_cast<std::size_t>(r / batch.top_k)] += batch.weights[static_cast<std::size_t>(r)] * (rounding + sums);
  }
  return bounds;
}

// The cases of all tests of ranks: K from 768 on, some ragged; E that few numbers of ranks divide; I in pieces that
// are uneven.
inline std::vector<LayerCase> rank_cases() {
  std::vector<LayerCase> cases;
  for (const Recipe recipe : kRecipes) {
    for (const bool bias : {false, true}) {
      LayerCase c;
      c.recipe = recipe;
      c.hidden = bias ? 1040 : 2048;
      c.intermediate = bias ? 656 : 1024;
      c.experts = bias ? 11 : 9;
      c.top_k = bias ? 4 : 6;
      c.bias = bias;
      c.activation.kind = bias ? ActivationKind::swiglu_oai : ActivationKind::swiglu;
      c.format.static_input = !bias;
      c.format.per_channel = bias;
      c.row_invariant = true;
      c.seed = 31 + static_cast<std::uint64_t>(recipe);
      cases.push_back(c);
    }
  }
  return cases;
}

// A batch with ids that no rank has: -1, E, far above, and a token that goes nowhere.
inline sluice::testing::Batch rank_batch(const LayerCase& c, std::int64_t tokens, std::uint64_t seed) {
  using sluice::testing::RoutePattern;
  const RoutePattern pattern = seed % 2 == 0 ? RoutePattern::uniform : RoutePattern::zipf;
  sluice::testing::Batch b = sluice::testing::random_batch(c.problem().layer, tokens, DType::bf16, pattern, seed);
  if (tokens < 5) return b;
  b.ids[1] = kNoSlot;
  b.ids[static_cast<std::size_t>(c.top_k)] = SlotId{c.experts};
  b.ids[static_cast<std::size_t>(2 * c.top_k + 2)] = SlotId{1 << 30};
  for (std::int32_t s = 0; s < c.top_k; ++s) {
    b.ids[static_cast<std::size_t>(3 * c.top_k + s)] = s % 2 == 0 ? kNoSlot : SlotId{c.experts};
  }
  return b;
}

}  // namespace sluice::gpu_tests
