// Times the experts of MoE layers on a GPU against its limits, and against figures of other software.
//
// Called by `sluice bench moe --device cuda`; prints nothing. The floor of a point is max(bytes / read bandwidth,
// operations / peak) with the limits of an H200 that the stored figures of others were computed with; the limits of the
// GPU at hand are measured first and reported beside them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/bench_moe.h"
#include "cuda/layer_bench.h"

namespace sluice::app {

// What other software took for the same layer.
struct PeerPoint {
  Recipe recipe = Recipe::bf16;
  std::string shape;
  std::int64_t tokens = 0;
  double us = 0;
  double floor_us = 0;  // of the routing that was timed
};
// A CSV file with the columns recipe,shape,tokens,us,floor_us. Throws Error(bad_input) naming the line.
std::vector<PeerPoint> read_peers(const std::string& path);

struct GpuMoeOptions {
  std::vector<MoeShape> shapes;
  std::vector<Recipe> recipes{Recipe::bf16};
  std::vector<std::int64_t> tokens{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
  std::vector<PeerPoint> peers;
  int device = 0;
  int threads = 0;  // that prepare weights; 0 = all processors of this process
  std::uint64_t seed = 1;
};

struct GpuMoePoint {
  std::string shape;
  Recipe recipe = Recipe::bf16;
  std::int64_t tokens = 0;
  double active_experts = 0;
  int repetitions = 0;
  double median_us = 0;
  double min_us = 0;
  double route_us = 0;      // of the routing kernel alone; 0 where there is none
  double finalize_us = 0;   // by which the whole layer takes longer than without its last kernel
  double invariant_us = 0;  // of the layer in the row-invariant mode
  double bytes = 0;         // active weights, hidden rows and output
  double operations = 0;    // multiplications and additions
  double floor_us = 0;
  bool memory_bound = true;
  double error = 0;  // relative L2 distance from the oracle on the rows that were checked
  int checked_rows = 0;
  std::string kernel;
  double peer_us = 0;        // 0 = not known
  double peer_floor_us = 0;  // differs a little from floor_us where the routing activated other experts

  double percent_of_floor() const { return 100.0 * floor_us / median_us; }
  double tb_per_s() const { return 1e-6 * bytes / median_us; }
  double tflop_per_s() const { return 1e-6 * operations / median_us; }
  // How many times faster than the peer, each measured against its own floor where that is not the same.
  double speedup() const { return peer_us > 0 ? (peer_us / peer_floor_us) / (median_us / floor_us) : 0; }
};

struct GpuMoeResult {
  cuda::GpuCeilings ceilings;
  std::vector<GpuMoePoint> points;
};

// Limits that floors are computed with.
inline constexpr double kFloorTbPerS = 4.55;
double floor_tflop_per_s(Recipe recipe);

// `begin` hears the ceilings before the first layer, `each` every point as soon as it is there. Throws
// Error(check_failed) instead of giving a time for a result that is farther from the oracle than architecture section 5
// allows.
GpuMoeResult bench_moe_gpu(const GpuMoeOptions& options, const std::function<void(const cuda::GpuCeilings&)>& begin,
                           const std::function<void(const GpuMoePoint&)>& each);

}  // namespace sluice::app
