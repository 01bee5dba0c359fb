// Choice of token tile and split from sizes alone (launch.h).
#include <algorithm>

#include "cuda/sm90/launch.h"

namespace sluice::cuda::sm90 {
namespace {

// Instances of the kernel exist for every token tile with the common activations, for two with the others.
bool has_all_tiles(ActivationKind kind) {
  return kind != ActivationKind::geglu_erf && kind != ActivationKind::situ && kind != ActivationKind::relu2;
}

// Smallest token tile that holds the rows of a typical busy expert, so that weights are read once.
std::int32_t token_tile_for(double rows_per_expert) {
  if (rows_per_expert <= 3.0) return 8;
  if (rows_per_expert <= 8.0) return 16;
  if (rows_per_expert <= 20.0) return 32;
  if (rows_per_expert <= 48.0) return 64;
  return 128;
}

// Blocks that share a tile: as many as leave no multiprocessor without a tile of FC1, and two anyway where a tile is so
// long that uneven shares cost more than the reduction. Measured on five layer shapes (docs/performance.md).
std::int32_t split_for(const Extents& e, double active, std::int32_t token_tile, std::int32_t sm_count) {
  constexpr double kLongTileBytes = 1.5e6;
  const std::int32_t most = std::min({token_tile == 8 ? 4 : token_tile == 16 ? 2 : 1, e.k_blocks1, e.k_blocks2});
  std::int32_t split = 1;
  while (split * 2 <= most && active * e.tiles1 * split * 2 <= sm_count) split *= 2;
  const double tile_bytes = std::min(e.records1, kTileRecords) * double{kRecordBytes} * e.k_blocks1;
  if (split == 1 && most >= 2 && tile_bytes >= kLongTileBytes) split = 2;
  return split;
}

}  // namespace

Plan choose_plan(const Shape& shape, ActivationKind activation, std::int64_t tokens, std::int32_t top_k,
                 std::int32_t experts_global, std::int32_t sm_count) {
  const Extents e = extents(shape);
  const double routes = static_cast<double>(tokens) * top_k;
  const double local = routes * shape.experts / std::max(experts_global, 1);
  Plan plan;
  plan.token_tile = token_tile_for(local / std::max(shape.experts, 1));
  if (!has_all_tiles(activation)) plan.token_tile = plan.token_tile <= 16 ? 16 : 64;
  const double active = std::min<double>(std::max(local, 1.0), shape.experts);
  plan.split = split_for(e, active, plan.token_tile, sm_count);
  return plan;
}

const char* plan_name(const Plan& plan) {
  switch (plan.token_tile) {
    case 8:
      return plan.split == 1 ? "sm90-t8" : plan.split == 2 ? "sm90-t8-split2" : "sm90-t8-split4";
    case 16:
      return plan.split == 1 ? "sm90-t16" : "sm90-t16-split2";
    case 32:
      return "sm90-t32";
    case 64:
      return "sm90-t64";
    default:
      return "sm90-t128";
  }
}

}  // namespace sluice::cuda::sm90
