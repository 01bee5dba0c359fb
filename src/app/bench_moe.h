// Times the experts of one MoE layer on the CPU against what this machine could do at best.
//
// Called by `sluice bench moe`. Makes its own threads and random weights; prints nothing. The floor of a point is
// max(bytes / read bandwidth, operations / peak); both ceilings are measured by the same threads between the
// repetitions, because on a shared machine they change from one second to the next.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/log.h"
#include "cpu/features.h"
#include "moe/recipe.h"
#include "moe/spec.h"

namespace sluice::app {

struct MoeShape {
  std::string_view name;
  std::string_view note;
  std::int32_t experts = 0;        // of the layer; a token chooses among all of them
  std::int32_t local_experts = 0;  // held by this rank
  std::int32_t top_k = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  ActivationKind activation = ActivationKind::swiglu;
  bool has_bias = false;
};

std::span<const MoeShape> moe_shapes();
// Throws Error(usage) that lists all shapes.
const MoeShape& moe_shape(std::string_view name);

struct MoeBenchOptions {
  MoeShape shape;
  std::vector<std::int64_t> tokens{1, 16, 256, 1024};
  int threads = 0;  // 0 = all processors of this process
  cpu::Isa isa = cpu::Isa::scalar;
  Recipe recipe = Recipe::bf16;
  double seconds = 3.0;  // least time spent on each token count
  std::uint64_t seed = 1;
};

struct MoeBenchPoint {
  std::int64_t tokens = 0;
  double active_experts = 0;  // mean over repetitions
  int repetitions = 0;
  double median_us = 0;
  double min_us = 0;
  double bytes = 0;       // active weights, hidden rows and output, mean over repetitions
  double operations = 0;  // multiplications and additions, mean over repetitions
  double gb_per_s = 0;    // at the median time
  double gflop_per_s = 0;
  double read_gb_per_s = 0;     // ceiling, median of the measurements around the repetitions
  double peak_gflop_per_s = 0;  // the same
  double floor_us = 0;          // with these medians
  bool memory_bound = true;     // which term the floor is
  // Median over repetitions of floor / time, with the ceilings measured next to each repetition.
  double percent_of_floor = 0;
  double error = 0;  // relative L2 distance from the reference runner on the rows that were checked
  int checked_rows = 0;
};

struct MoeBenchResult {
  MoeShape shape;
  std::string machine;  // processor and instruction sets
  std::string isa;
  Recipe recipe = Recipe::bf16;
  int threads = 0;
  double prepare_seconds = 0;
  std::int64_t resident_bytes = 0;
  double error_bound = 0;
  std::vector<MoeBenchPoint> points;
};

// Throws Error(check_failed) instead of giving a time for a result that is not the reference runner's within
// error_bound. Every repetition routes at random anew, and a buffer much larger than the caches is read between
// repetitions, so weights come from memory.
MoeBenchResult bench_moe(const MoeBenchOptions& options, const ProgressSink& progress);

}  // namespace sluice::app
