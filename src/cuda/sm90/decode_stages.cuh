// How the kernel for a few tokens records what it works with (stages, decode.h): block 0 writes the rows that it has in
// shared memory to the images that the other kernels use. Called by all threads of a block.
#pragma once

#include "cuda/sm90/decode_input.cuh"

namespace sluice::cuda::sm90 {

// A row in shared memory into row `padded` of an image, and its scales.
template <Format F>
__device__ inline void record_row(const DecodeStages& st, const unsigned char* row, std::int32_t k_blocks,
                                  std::int32_t padded, std::uint8_t* image, float* scales) {
#pragma unroll 1
  for (std::int32_t i = ptx::this_thread(); i < k_blocks * 8; i += kDecodeThreads) {
    const std::int32_t kb = i / 8, c = i % 8;
    uint4 chunk;
    if constexpr (F == Format::bf16) {
      chunk = reinterpret_cast<const uint4*>(row)[i];
    } else {
      const auto* pairs = reinterpret_cast<const uint4*>(row + kb * 256 + c * 32);
      const uint4 low = pairs[0], high = pairs[1];
      chunk = make_uint4(ptx::codes_of_f16(low.x, low.y), ptx::codes_of_f16(low.z, low.w),
                         ptx::codes_of_f16(high.x, high.y), ptx::codes_of_f16(high.z, high.w));
    }
    *reinterpret_cast<uint4*>(image + image_offset(kb, padded, c, st.padded_rows)) = chunk;
    if (F == Format::fp8_block && c == 0) {
      scales[kb * st.padded_rows + padded] = reinterpret_cast<const float*>(row + k_blocks * 256)[kb];
    }
  }
}

template <Format F>
__device__ inline void record_x(const Block& b) {
  const DecodeStages& st = b.k.a.stages;
  if (st.route_row == nullptr || b.index != 0) return;
#pragma unroll 1
  for (std::int32_t p = 0; p < b.t.places; ++p) {
    const std::int32_t route = b.t.route_of[p], padded = st.route_row[route];
    const unsigned char* row = b.shared + b.k.s.by_top_k.quotient(route) * b.k.s.x_stride;
    record_row<F>(st, row, b.k.sides[0].k_blocks, padded, st.x, st.x_scale);
    if (F == Format::fp8_tensor && ptx::this_thread() == 0) st.x_scale[padded] = b.k.a.x_static_scale;
  }
}

template <Format F>
__device__ inline void record_h(const Block& b, const Places& p) {
  const DecodeStages& st = b.k.a.stages;
  if (st.route_row == nullptr || b.index != 0) return;
#pragma unroll 1
  for (std::int32_t r = 0; r < p.count; ++r) {
    const std::int32_t padded = st.route_row[b.t.route_of[p.first + r]];
    record_row<F>(st, b.shared + r * b.k.s.h_stride, b.k.sides[1].k_blocks, padded, st.h, st.h_scale);
  }
}

}  // namespace sluice::cuda::sm90
