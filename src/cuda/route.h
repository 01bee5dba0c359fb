// R: sorts the routes of a batch by local expert, cuts each expert's rows into token tiles, and writes the rows that
// GEMM1 reads, quantised by the recipe and in sorted order, as the image of sm90/launch.h. Bits of codes and scales are
// those of numerics/block_fp8.h. Repeatable: rows are in the order of moe/permutation.h whatever the plan.
//
// Launched by the runner on the caller's stream as a dependent of the kernel before it; may be captured. One launch up
// to kRouteOnePassRoutes routes, two beyond.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/route_plan.h"

namespace sluice::cuda {

enum class InputForm : std::uint8_t {
  bf16,
  fp8_group,    // e4m3, a scale per 128 columns
  fp8_static,   // e4m3, one scale for all rows
  fp8_dynamic,  // e4m3, a scale a row
};

// Where the rows of GEMM1 input are left. The last two need `row_token`, and no plan that is `few`.
enum class RowsAs : std::uint8_t {
  sorted,    // an image in the order of padded rows, of each route one
  by_token,  // [T][k_blocks][128], of each token that has a row one
  in_place,  // nowhere, GEMM1 reads `hidden` or `codes` itself
};

struct RouteArgs {
  RoutePlan plan;
  const std::int32_t* ids = nullptr;           // [T, k] slot ids; outside [first_slot, first_slot + experts) = skipped
  const std::int32_t* valid_tokens = nullptr;  // device scalar, nullptr = all; later tokens are skipped
  std::int32_t first_slot = 0;

  InputForm form = InputForm::bf16;
  const void* hidden = nullptr;          // [T, H] bf16, or nullptr = codes
  std::int64_t hidden_row_stride = 0;    // elements
  std::int64_t width = 0;                // H
  std::int32_t k_blocks = 0;             // of a row of the image
  const float* input_weights = nullptr;  // [T] multiplies the row first (k = 1), or nullptr
  float static_scale = 0.0f;             // fp8_static
  const std::uint8_t* codes = nullptr;   // [T, H] e4m3, of fp8_group or (a scale a row or one for all) fp8_static
  std::int64_t code_row_stride = 0;
  const float* code_scales = nullptr;      // [T, k_blocks] of fp8_group, else [T]
  std::int64_t code_scale_row_stride = 0;  // 0 = one for all
  const float* later = nullptr;            // [T, k] weights that F reads; brought near, or nullptr

  std::int32_t* row_token = nullptr;  // out [P]: token of each padded row but gaps, or nullptr
  // Where k = 1 and rows go straight to the output (sm90::DirectOutput):
  void* output = nullptr;  // [T, H] bf16, 16-byte rows: zeros go into rows of tokens that are skipped
  std::int64_t output_row_stride = 0;

  std::int32_t* scratch = nullptr;     // plan.scratch_bytes()
  std::int32_t* route_row = nullptr;   // out [T, k]: padded row of each route, -1 where it is skipped
  std::int32_t* tile_count = nullptr;  // out [1]
  std::uint32_t* published = nullptr;  // out [1]: RouteTables::published, or nullptr
  sm90::TokenTile* tiles = nullptr;    // out [max_tiles]
  std::int32_t max_tiles = 0;
  std::uint32_t* ready = nullptr;  // out [max_tiles] zeros
  RowsAs rows = RowsAs::sorted;
  std::uint8_t* image = nullptr;  // out [k_blocks][P][128], or as `rows` says
  float* scales = nullptr;        // out fp8_group: [k_blocks][P]; fp8_static and fp8_dynamic: [P]
  std::int64_t padded_rows = 0;   // P
};

// Raises shared memory limits of the current device; once before launching or capturing.
cudaError_t prepare_route();

cudaError_t launch_route(const RouteArgs& args, cudaStream_t stream);

}  // namespace sluice::cuda
