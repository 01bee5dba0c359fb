// Choice of token tile and split from sizes alone (launch.h).
#include <algorithm>
#include <cmath>

#include "cuda/sm90/decode.h"

namespace sluice::cuda::sm90 {
namespace {

// Instances of the kernel exist for every token tile with the common activations, for two with the others.
bool has_all_tiles(ActivationKind kind) {
  return kind != ActivationKind::geglu_erf && kind != ActivationKind::situ && kind != ActivationKind::relu2;
}

// Routes a token from which on the kernel gathers its rows: a sorted image has that many copies of each. With fewer the
// bulk copies of the image gain more than the image costs. Measured with 1, 2, 4 and 8.
constexpr std::int32_t kGatherFrom = 8;

// Smallest token tile that holds the rows of a typical busy expert, so that weights are read once. Where rows can be
// gathered, those of 128 pay earlier; in fp8_block a tile is computed by halves of 64 rows. Measured at 32 and 64 rows.
std::int32_t token_tile_for(Format format, double rows_per_expert, std::int32_t top_k) {
  const bool gathers = top_k >= kGatherFrom && format != Format::fp8_block;
  if (rows_per_expert <= 3.0) return 8;
  if (rows_per_expert <= 8.0) return 16;
  if (rows_per_expert <= 20.0) return 32;
  if (rows_per_expert <= (gathers ? 24.0 : 48.0)) return 64;
  return 128;
}

// How row tiles are shared out where the longest of them is a large part of what a multiprocessor streams in all:
// halved, and where FC1 has fewer of them than there are multiprocessors, split over two blocks in K, which costs a
// reduction. Measured on five layer shapes.
void share_out(const Shape& shape, const Extents& e, double active, std::int32_t sm_count, Plan& plan) {
  if (plan.token_tile > 16) return;
  const double tile1 = std::min(e.records1, kTileRecords) * double{kRecordBytes} * e.k_blocks1;
  const double tile2 = std::min(e.records2, kTileRecords) * double{kRecordBytes} * e.k_blocks2;
  const double expert = double{kRecordBytes} *
                        (static_cast<double>(e.records1) * e.k_blocks1 + static_cast<double>(e.records2) * e.k_blocks2);
  plan.half_tiles = std::max(tile1, tile2) * sm_count >= 0.2 * active * expert;
  const double tiles1 = active * e.tiles1 * (shape.format == Format::bf16 ? 2 : 1);
  const bool can_split = plan.token_tile == 8 && e.k_blocks1 > 1 && e.k_blocks2 > 1;
  if (tiles1 < sm_count && can_split) plan.split = 2;
}

// Bytes of weights up to which the launch for few tokens is the faster one. Measured on five layer shapes: its start,
// middle and end are shorter than those of three kernels, its stream is a little slower, and it does more for a token.
double most_decode_bytes(Format format, std::int64_t tokens) {
  switch (format) {
    case Format::bf16:
      return tokens == 1 ? 720e6 : 205e6;
    case Format::fp8_tensor:
      return tokens == 1 ? 360e6 : 180e6;
    default:
      return tokens == 1 ? 360e6 : 90e6;
  }
}

}  // namespace

Plan choose_plan(const Shape& shape, ActivationKind activation, std::int64_t tokens, std::int32_t top_k,
                 std::int32_t experts_global, std::int32_t sm_count) {
  const Extents e = extents(shape);
  const double routes = static_cast<double>(tokens) * top_k;
  const double local = routes * shape.experts / std::max(experts_global, 1);
  Plan plan;
  plan.token_tile = token_tile_for(shape.format, local / std::max(shape.experts, 1), top_k);
  if (!has_all_tiles(activation)) plan.token_tile = plan.token_tile <= 16 ? 16 : 64;
  const double active = std::min<double>(std::max(local, 1.0), shape.experts);
  share_out(shape, e, active, sm_count, plan);
  plan.gather = plan.token_tile == kGatheredTile && top_k >= kGatherFrom;
  return plan;
}

bool decode_pays(const Shape& shape, std::int64_t tokens, std::int32_t top_k, std::int32_t experts_global,
                 std::int32_t sm_count) {
  if (!decode_fits(shape, tokens, top_k, sm_count)) return false;
  const Extents e = extents(shape);
  const double local = static_cast<double>(tokens) * top_k * shape.experts / std::max(experts_global, 1);
  const double active = std::min<double>(std::max(local, 1.0), shape.experts);
  const double expert = double{kRecordBytes} *
                        (static_cast<double>(e.records1) * e.k_blocks1 + static_cast<double>(e.records2) * e.k_blocks2);
  // Experts with more rows than a chunk takes are read more than once.
  const double reads = std::ceil(local / active / decode_sizes(shape, tokens, top_k, sm_count).chunk_rows);
  return active * expert * reads <= most_decode_bytes(shape.format, tokens);
}

const char* plan_name(const Plan& plan) {
  if (plan.decode) return "sm90-decode";
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
      return plan.gather ? "sm90-t128-gather" : "sm90-t128";
  }
}

}  // namespace sluice::cuda::sm90
