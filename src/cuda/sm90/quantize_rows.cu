#include <cfloat>

#include "cuda/ptx/copy.cuh"
#include "cuda/sm90/quantize_rows.cuh"

namespace sluice::cuda::sm90 {
namespace {

constexpr int kWarps = 8;

__device__ float row_amax(const float* row, std::int32_t count, std::int32_t lane) {
  float amax = 0.0f;
  for (std::int32_t c = lane; c < count; c += 32) {
    const float magnitude = fabsf(row[c]);
    amax = fmaxf(amax, magnitude <= FLT_MAX ? magnitude : 0.0f);
  }
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, bit));
  return amax;
}

// A warp per token row; the zero row gets scale 1 (numerics/block_fp8.h).
__global__ void __launch_bounds__(kWarps * 32) quantize_rows(QuantizeRowsArgs args) {
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t warp = threadIdx.x / 32;
  const std::int32_t tiles = *args.routes.tile_count;
  // FC2 is a launch of its own here and hands out its work anew.
  if (blockIdx.x == 0 && threadIdx.x == 0) args.routes.ready[args.routes.max_tiles - 1] = 0;
  for (std::int32_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    const TokenTile tile = args.routes.tiles[i];
    for (std::int32_t r = warp; r < tile.rows; r += kWarps) {
      const std::int64_t row = tile.first_row + r;
      const float* values = args.values + row * args.stride;
      const float amax = row_amax(values, args.k_blocks * 128, lane);
      const float scale = amax == 0.0f ? 1.0f : fmaxf(__fdiv_rn(amax, 448.0f), FLT_MIN);
      if (lane == 0) args.h_scale[row] = scale;
      for (std::int32_t pair = lane; pair < args.k_blocks * 64; pair += 32) {
        const std::int32_t kb = pair / 64;
        const std::int32_t p = pair % 64 * 2;
        const float a = __fdiv_rn(values[kb * 128 + fp8_intermediate_column(p)], scale);
        const float b = __fdiv_rn(values[kb * 128 + fp8_intermediate_column(p + 1)], scale);
        const std::int64_t to = image_offset(kb, row, p / 16, args.padded_rows) + p % 16;
        *reinterpret_cast<std::uint16_t*>(args.h + to) = static_cast<std::uint16_t>(ptx::pack_e4m3(a, b));
      }
    }
  }
}

}  // namespace

cudaError_t launch_quantize_rows(const QuantizeRowsArgs& args, std::int32_t sm_count, cudaStream_t stream) {
  quantize_rows<<<sm_count * 4, kWarps * 32, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace sluice::cuda::sm90
