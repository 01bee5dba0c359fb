// Each rank's slice of a layer in turn on the one GPU: experts spread over ranks, experts cut into pieces, and both,
// against one rank that has everything and against the fp32 oracle.
#include <algorithm>
#include <string>
#include <utility>

#include "gpu/harness.h"
#include "gpu/ranks_case.h"

namespace sluice::gpu_tests {
namespace {

using sluice::testing::Batch;
using sluice::testing::OutputKind;
using sluice::testing::parallel_sizes;

// What all ranks sent, brought together.
struct Home {
  Floats sum;                         // [T, H] the ranks' sums, added in ascending order
  Floats rows;                        // [T * k, H] slot rows of the ranks that have the expert; of the last piece
  std::vector<int> owners;            // [T * k] ranks that computed it
  std::vector<double> norms;          // [T * k] of the slot rows of all pieces, added up
  bool stray = false;                 // a rank wrote a row that is not its own
  double oracle_distance = INFINITY;  // of the sum, from the sum of the oracles of all slices
};

// The oracle's sum for every token of a slice.
Floats oracle_sum(const RankSlice& s, const DeviceBatch& batch) {
  const cuda::Oracle oracle(s.problem, s.weights, 0);
  std::vector<std::int64_t> tokens;
  for (std::int64_t t = 0; t < batch.tokens; ++t) tokens.push_back(t);
  return oracle.rows(batch.oracle_batch(s.slots.first), tokens).sum;
}

void add_to(Floats& into, const Floats& from) {
  into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] += from[i];
}

// The slot rows of one rank.
void collect(Home& home, const RankSlice& s, const Batch& batch, const Floats& rows) {
  for (std::int64_t r = 0; r < batch.tokens * batch.top_k; ++r) {
    const auto first = rows.begin() + r * batch.width;
    if (s.slots.contains(batch.ids[static_cast<std::size_t>(r)])) {
      std::copy_n(first, batch.width, home.rows.begin() + r * batch.width);
      ++home.owners[static_cast<std::size_t>(r)];
      home.norms[static_cast<std::size_t>(r)] += row_norm(rows, r, batch.width);
    } else {
      home.stray = home.stray || std::any_of(first, first + batch.width, [](float v) { return v != 0.0f; });
    }
  }
}

Home run_in_turn(const LayerOverRanks& layer, const ParallelSizes& sizes, const Batch& batch,
                 RankFault fault = RankFault::none) {
  Home home;
  home.rows.resize(static_cast<std::size_t>(batch.tokens * batch.top_k * batch.width));
  home.owners.resize(batch.ids.size());
  home.norms.resize(batch.ids.size());
  Batch sent = batch;
  if (fault == RankFault::skipped_id_computed) std::replace(sent.ids.begin(), sent.ids.end(), kNoSlot, SlotId{0});
  const DeviceBatch device_batch(batch);
  Floats oracle;
  for (std::int32_t r = 0; r < sizes.tp; ++r) {
    if (fault == RankFault::one_rank_missing && r == 1) continue;
    const RankSlice s = layer.slice(sizes, r, fault);
    collect(home, s, batch, layer.run(s, sent, OutputKind::routes_f32));
    add_to(home.sum, layer.run(s, sent, OutputKind::sum_f32));
    add_to(oracle, oracle_sum(layer.cut(sizes, r), device_batch));
  }
  home.oracle_distance = relative_l2(home.sum, oracle);
  return home;
}

// The weighted sum of slot rows as it is made at home.
Floats sum_slots(const Batch& batch, const Floats& rows, RankFault fault = RankFault::none) {
  Floats sum(static_cast<std::size_t>(batch.tokens * batch.width));
  for (std::int64_t t = 0; t < batch.tokens; ++t) {
    for (std::int32_t i = 0; i < batch.top_k; ++i) {
      const std::int64_t r = t * batch.top_k + (fault == RankFault::slots_out_of_order ? batch.top_k - 1 - i : i);
      const float weight = batch.weights[static_cast<std::size_t>(r)];
      for (std::int64_t h = 0; h < batch.width; ++h) sum[t * batch.width + h] += weight * rows[r * batch.width + h];
    }
  }
  return sum;
}

struct Whole {
  Floats rows, sum;
};
Whole run_whole(const LayerOverRanks& layer, const Batch& batch) {
  return {layer.run_whole(batch, OutputKind::routes_f32), layer.run_whole(batch, OutputKind::sum_f32)};
}

double distance(const LayerOverRanks& layer, const Batch& batch, const Whole& whole, const Home& home,
                std::int32_t pieces) {
  return worst_in_bounds(home.sum, whole.sum, token_bounds(layer.spec, batch, whole.rows, home.norms, pieces));
}

// Every route that is an expert's was computed by `pieces` ranks, all others by none.
bool owned_by(const Batch& batch, const Home& home, std::int32_t experts, std::int32_t pieces) {
  bool good = !home.stray;
  for (std::size_t r = 0; r < batch.ids.size(); ++r) {
    const bool real = raw(batch.ids[r]) >= 0 && raw(batch.ids[r]) < experts;
    good = good && home.owners[r] == (real ? pieces : 0);
  }
  return good;
}

double bound_of(const LayerCase& c, std::int64_t columns) {
  return columns < 512 ? small_layer_bound(c.recipe) : oracle_bound(c.recipe);
}

std::string name_of(const LayerCase& c, const ParallelSizes& sizes, std::int64_t tokens) {
  return "tp " + std::to_string(sizes.tp) + " ep " + std::to_string(sizes.ep) + " T " + std::to_string(tokens) + ": " +
         c.text();
}

void check_against_whole(Check& check, const LayerOverRanks& layer, const ParallelSizes& sizes, const Batch& batch,
                         const Whole& whole) {
  const std::int32_t pieces = sizes.tp / sizes.ep;
  const std::string name = name_of(layer.spec, sizes, batch.tokens);
  const Home home = run_in_turn(layer, sizes, batch);
  check.expect(owned_by(batch, home, layer.spec.experts, pieces), "a route has not its ranks, " + name);
  check.expect(home.oracle_distance <= bound_of(layer.spec, layer.spec.intermediate / pieces),
               "distance from the oracle " + std::to_string(home.oracle_distance) + ", " + name);
  check.at_most(distance(layer, batch, whole, home, pieces), 1.0, "distance of the sums in bounds, " + name);
  if (pieces > 1) return;
  check.expect(same_bits(home.rows, whole.rows), "slot rows differ from one rank's, " + name);
  check.expect(same_bits(sum_slots(batch, home.rows), whole.sum), "the sum at home differs from one rank's, " + name);
}

void over(Check& check, const std::vector<std::pair<int, int>>& splits) {
  for (const LayerCase& c : rank_cases()) {
    const LayerOverRanks layer(c);
    for (const std::int64_t tokens : {1, 37}) {
      const Batch batch = rank_batch(c, tokens, static_cast<std::uint64_t>(tokens) + (c.bias ? 1 : 0));
      const Whole whole = run_whole(layer, batch);
      const double far = relative_l2(whole.sum, oracle_sum(layer.cut(parallel_sizes(1, 1, 1), 0), DeviceBatch(batch)));
      check.expect(far <= oracle_bound(c.recipe), "one rank is " + std::to_string(far) + " from the oracle");
      for (const auto& [tp, ep] : splits) check_against_whole(check, layer, parallel_sizes(tp, ep, 1), batch, whole);
    }
  }
  check.note("worst: distance from one rank in units of its bound");
}

void experts_in_turn(Check& check) { over(check, {{2, 2}, {3, 3}, {4, 4}, {8, 8}}); }
void pieces_in_turn(Check& check) { over(check, {{2, 1}, {4, 1}}); }
void both_in_turn(Check& check) { over(check, {{4, 2}, {6, 3}, {8, 2}}); }

// Without the row-invariant mode a rank may sum in other orders than one rank does: the oracle is what both are near.
void fast_mode(Check& check) {
  for (LayerCase c : rank_cases()) {
    c.row_invariant = false;
    const LayerOverRanks layer(c);
    for (const auto& [tp, ep] : {std::pair{4, 4}, {4, 2}}) {
      const Batch batch = rank_batch(c, 3, 5);
      const Home home = run_in_turn(layer, parallel_sizes(tp, ep, 1), batch);
      check.at_most(home.oracle_distance, bound_of(c, c.intermediate / (tp / ep)),
                    "distance from the oracle, " + name_of(c, parallel_sizes(tp, ep, 1), 3));
    }
  }
}

// What the comparisons above must not take.
void faults(Check& check) {
  for (const LayerCase& c : rank_cases()) {
    if (!c.bias || (c.recipe == Recipe::fp8_tensor)) continue;  // dynamic scales have a bound too wide for a bias
    const LayerOverRanks layer(c);
    const Batch batch = rank_batch(c, 12, 4);
    const Whole whole = run_whole(layer, batch);
    const auto far = [&](int tp, int ep, RankFault fault) {
      return distance(layer, batch, whole, run_in_turn(layer, parallel_sizes(tp, ep, 1), batch, fault), tp / ep) > 1.0;
    };
    check.expect(far(3, 3, RankFault::neighbours_experts), "a neighbour's weights were not noticed, " + c.text());
    check.expect(far(2, 1, RankFault::bias_on_every_piece), "a second bias was not noticed, " + c.text());
    check.expect(far(4, 2, RankFault::bias_on_every_piece), "a second bias was not noticed, " + c.text());
    check.expect(far(4, 1, RankFault::columns_off_by_a_group), "shifted columns were not noticed, " + c.text());
    check.expect(far(3, 3, RankFault::one_rank_missing), "a missing rank was not noticed, " + c.text());
    check.expect(far(4, 1, RankFault::one_rank_missing), "a missing piece was not noticed, " + c.text());
    const Home skipped = run_in_turn(layer, parallel_sizes(2, 2, 1), batch, RankFault::skipped_id_computed);
    check.expect(skipped.stray, "a computed -1 was not noticed, " + c.text());
    const Home good = run_in_turn(layer, parallel_sizes(2, 2, 1), batch);
    check.expect(!same_bits(sum_slots(batch, good.rows, RankFault::slots_out_of_order), whole.sum),
                 "another order of slots was not noticed, " + c.text());
  }
}

}  // namespace

std::vector<Test> ranks_turn_tests() {
  return {{"ranks in turn: experts spread", experts_in_turn},
          {"ranks in turn: experts in pieces", pieces_in_turn},
          {"ranks in turn: both", both_in_turn},
          {"ranks in turn: not row-invariant", fast_mode},
          {"ranks in turn: faults are seen", faults}};
}

}  // namespace sluice::gpu_tests
