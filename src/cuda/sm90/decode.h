// The whole layer of a few tokens in one launch: routing, both GEMMs and the sum over slots. Up to 32 routes.
//
// Called by the Hopper runner in place of routing kernel, launch_experts and finalise kernel. Nothing here owns memory,
// allocates or synchronises; all pointers are device pointers; thread-safe.
#pragma once

#include "cuda/sm90/decode_work.h"

namespace sluice::cuda::sm90 {

// Where stages are recorded (run_hopper.h): arrays as the other kernels leave them. route_row is that of the routing
// kernel, which then runs before.
struct DecodeStages {
  const std::int32_t* route_row = nullptr;  // [T, k] padded rows; nullptr = nothing is recorded
  std::int64_t padded_rows = 0;             // P
  std::uint8_t* x = nullptr;                // image [k_blocks1][P][128]
  float* x_scale = nullptr;                 // fp8_block: [k_blocks1][P]; fp8_tensor: [P]
  std::uint8_t* h = nullptr;                // image [k_blocks2][P][128]
  float* h_scale = nullptr;                 // fp8_block: [k_blocks2][P]
  std::uint16_t* slot_rows = nullptr;       // [P][H] bf16
};

// What the blocks of a launch tell each other through, in global memory. Before a launch the flags are 0 and all bits
// of h are set. Either there is one set, which a kernel before the layer's clears; or two, which launches use in turn,
// each of them clearing the other for the next one. Then the memory keeps its content between launches, and no two of
// them run at once.
struct DecodeState {
  std::uint32_t* turn = nullptr;   // blocks that came, modulo 2 sm_count: which set is whose turn; nullptr = one set
  std::uint32_t* flags = nullptr;  // decode_flag_bytes a set
  void* h = nullptr;               // h_bytes a set, alignment 128
  std::int64_t h_bytes = 0;        // at least decode_h_bytes; where there are two sets
};

struct DecodeArgs {
  Shape shape;
  PackedLayer weights;
  ActivationSpec activation;
  std::int64_t tokens = 0;  // T
  std::int32_t top_k = 1;   // k

  const std::int32_t* ids = nullptr;           // [T, k]; outside [first_slot, first_slot + experts) = skipped
  const std::int32_t* valid_tokens = nullptr;  // scalar, nullptr = all
  std::int32_t first_slot = 0;
  const void* hidden = nullptr;  // [T, H] bf16
  std::int64_t hidden_row_stride = 0;
  const float* input_weights = nullptr;  // [T] multiplies the row first (k = 1), or nullptr
  const float* sum_weights = nullptr;    // [T, k], or nullptr = 1
  float x_static_scale = 0.0f;           // fp8_tensor
  float h_static_scale = 0.0f;

  void* out = nullptr;  // [T, H], or [T * k, H] of `routes`
  std::int64_t out_row_stride = 0;
  bool out_bf16 = false;  // else f32
  bool routes = false;    // slot rows in place of their sum

  DecodeState state;
  DecodeStages stages;

  std::int32_t sm_count = 0;
  std::int32_t launches = 1;  // that the blocks are spread over, one after the other: tests of blocks that start late
};

std::size_t decode_flag_bytes(std::int32_t sm_count);  // whole lines of 128
std::size_t decode_h_bytes(const Shape& shape, std::int64_t routes);

// Whether the kernel can do it; fp8_tensor needs static scales besides.
constexpr bool decode_fits(const Shape& shape, std::int64_t tokens, std::int32_t top_k, std::int32_t sm_count) {
  return decode_sizes(shape, tokens, top_k, sm_count).bytes != 0;
}

// Whether it is faster than the other kernels, as measured (plan.cc).
bool decode_pays(const Shape& shape, std::int64_t tokens, std::int32_t top_k, std::int32_t experts_global,
                 std::int32_t sm_count);

// Raises shared memory limits; once per device before launching or capturing.
cudaError_t prepare_decode();

// May be captured. One launch; before it another that clears the state where that has one set.
cudaError_t launch_decode(const DecodeArgs& args, cudaStream_t stream);
// That one alone.
cudaError_t launch_decode_clear(const DecodeArgs& args, cudaStream_t stream);

}  // namespace sluice::cuda::sm90
