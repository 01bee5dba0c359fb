// One run of the Hopper runner: its scratch in the workspace, and the arguments of its three steps. Called by
// runner_hopper.cc; the scratch is taken and sized by the same function, so that the two cannot differ.
#pragma once

#include "cuda/experts_hopper.h"
#include "cuda/finalize.h"
#include "cuda/route.h"
#include "cuda/sm90/decode.h"

namespace sluice::cuda {

struct RunSizes {
  sm90::Shape shape;
  std::int64_t tokens = 0;  // T
  std::int32_t top_k = 1;   // k
  std::int32_t processors = 0;
  bool static_intermediate = false;  // fp8-tensor with a scale of the file
  bool direct = false;               // k = 1: weighted rows go straight to the sum
  bool whole_rows = false;           // the routing kernel for a few routes cannot read the input (route_plan.h)
  sm90::Plan plan;
  RowsAs rows = RowsAs::sorted;  // of GEMM1 input

  std::int64_t routes() const { return tokens * top_k; }
  std::int64_t padded_rows() const { return sm90::max_padded_rows(routes(), shape.experts); }
  std::int32_t max_tiles() const {
    return static_cast<std::int32_t>(sm90::max_token_tiles(routes(), shape.experts, plan.token_tile));
  }
  RoutePlan route() const {
    return route_plan(tokens, top_k, shape.experts, sm90::extents(shape).k_blocks1, plan.token_tile,
                      sm90::token_tile_unit(shape.format, plan.token_tile), processors, whole_rows);
  }
};

struct RunScratch {
  std::int32_t* route_scratch = nullptr;
  std::int32_t* route_row = nullptr;   // [T, k]
  std::int32_t* row_token = nullptr;   // [P]
  std::int32_t* tile_count = nullptr;  // [1]
  std::uint32_t* published = nullptr;  // [1]
  sm90::TokenTile* tiles = nullptr;    // [max_tiles]
  std::uint32_t* ready = nullptr;      // [max_tiles]
  std::uint8_t* x = nullptr;           // image, or rows by token
  float* x_scale = nullptr;
  std::uint8_t* h = nullptr;  // image
  float* h_scale = nullptr;
  float* h_f32 = nullptr;
  std::uint16_t* slot_rows = nullptr;  // [P, H] bf16
  std::uint32_t* decode_flags = nullptr;
  void* decode_h = nullptr;
};

// make(bytes) is called for each array in a fixed order; with a function that counts it gives the workspace bytes.
template <class Make>
RunScratch make_scratch(const RunSizes& s, Make make) {
  const sm90::Extents e = sm90::extents(s.shape);
  const auto padded = static_cast<std::size_t>(s.padded_rows()), tiles = static_cast<std::size_t>(s.max_tiles());
  const std::size_t x_scales = s.shape.format == sm90::Format::fp8_block ? static_cast<std::size_t>(e.k_blocks1) : 1;
  const sm90::ScratchBytes own = sm90::scratch_bytes(s.shape, s.padded_rows(), s.static_intermediate);
  RunScratch r;
  r.route_scratch = static_cast<std::int32_t*>(make(s.route().scratch_bytes()));
  r.route_row = static_cast<std::int32_t*>(make(static_cast<std::size_t>(s.routes()) * 4));
  r.row_token = static_cast<std::int32_t*>(make(padded * 4));
  r.tile_count = static_cast<std::int32_t*>(make(4));
  r.published = static_cast<std::uint32_t*>(make(4));
  r.tiles = static_cast<sm90::TokenTile*>(make(tiles * sizeof(sm90::TokenTile)));
  r.ready = static_cast<std::uint32_t*>(make(tiles * 4));
  r.x = static_cast<std::uint8_t*>(make(static_cast<std::size_t>(e.k_blocks1) * padded * sm90::kBlockBytes));
  r.x_scale = static_cast<float*>(make(s.shape.format == sm90::Format::bf16 ? 0 : x_scales * padded * 4));
  r.h = static_cast<std::uint8_t*>(make(own.h));
  r.h_scale = static_cast<float*>(make(own.h_scale));
  r.h_f32 = static_cast<float*>(make(own.h_f32));
  r.slot_rows = static_cast<std::uint16_t*>(make(padded * static_cast<std::size_t>(s.shape.hidden) * 2));
  r.decode_flags = static_cast<std::uint32_t*>(make(sm90::decode_flag_bytes(s.processors)));
  r.decode_h = make(sm90::decode_h_bytes(s.shape, s.routes()));
  return r;
}

// Bytes of the workspace for up to `s.tokens` tokens, whatever their plans.
std::size_t workspace_bytes_of(RunSizes s);

// Whether each token has one route and an output that the GEMM kernel can write.
bool writes_directly(const HopperExperts& experts, const RunArgs& run);

// Where the routing kernel leaves the rows of GEMM1 input of a run: with a plan that gathers once a token, or nowhere
// if the caller's can be copied 16 bytes at a time as they are.
RowsAs rows_of(const HopperExperts& experts, const RunSizes& s, const RunArgs& run);

RouteArgs route_args(const HopperExperts& experts, const RunSizes& s, const RunScratch& r, const RunArgs& run);
sm90::ExpertArgs expert_args(const HopperExperts& experts, const RunSizes& s, const RunScratch& r, const RunArgs& run);
sm90::DecodeArgs decode_args(const HopperExperts& experts, const RunSizes& s, const RunScratch& r, const RunArgs& run);
FinalizeArgs finalize_args(const HopperExperts& experts, const RunScratch& r, const RunArgs& run);

// Copies the stages of a finished run to the host and records them (moe/stages.h): gemm1_input, intermediate and
// slot_rows; gate and up exist in registers only. Debugging: synchronises and allocates.
void record_stages(const HopperExperts& experts, const RunSizes& s, const RunScratch& r, const RunArgs& run);

}  // namespace sluice::cuda
