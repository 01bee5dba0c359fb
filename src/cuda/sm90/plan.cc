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

// How row tiles are shared out where the longest of them is a large part of what a multiprocessor streams in all.
// Measured on five layer shapes: a split of K over two blocks costs a reduction and pays for long tiles, half tiles do
// for shorter ones; fp8 can halve the tiles of FC2 only, which is not worth it while most multiprocessors are idle.
void share_out(const Shape& shape, const Extents& e, double active, std::int32_t sm_count, Plan& plan) {
  if (plan.token_tile > 16) return;
  const bool bf16 = shape.format == Format::bf16;
  const double tile1 = std::min(e.records1, kTileRecords) * double{kRecordBytes} * e.k_blocks1;
  const double tile2 = std::min(e.records2, kTileRecords) * double{kRecordBytes} * e.k_blocks2;
  const double expert =
      double{kRecordBytes} * (std::int64_t{e.records1} * e.k_blocks1 + std::int64_t{e.records2} * e.k_blocks2);
  const double longest = std::max(tile1, tile2);
  const double part = longest * sm_count / (active * expert);
  if (part < 0.3) return;
  if (longest >= (bf16 ? 1.3e6 : 0.6e6)) {
    if (e.k_blocks1 > 1 && e.k_blocks2 > 1) plan.split = 2;
    return;
  }
  plan.half_tiles = bf16 || part < 1.2;
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
  share_out(shape, e, active, sm_count, plan);
  return plan;
}

const char* plan_name(const Plan& plan) {
  const int variant = (plan.split > 1 ? 1 : 0) + (plan.half_tiles ? 2 : 0);
  constexpr const char* kNames8[] = {"sm90-t8", "sm90-t8-split", "sm90-t8-half", "sm90-t8-half-split"};
  constexpr const char* kNames16[] = {"sm90-t16", "sm90-t16-split", "sm90-t16-half", "sm90-t16-half-split"};
  switch (plan.token_tile) {
    case 8:
      return kNames8[variant];
    case 16:
      return kNames16[variant];
    case 32:
      return "sm90-t32";
    case 64:
      return "sm90-t64";
    default:
      return "sm90-t128";
  }
}

}  // namespace sluice::cuda::sm90
