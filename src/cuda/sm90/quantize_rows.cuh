// Quantises the intermediate of fp8_tensor layers without a static scale: one scale a token row from its amax, codes
// into the image that FC2 reads.
//
// Launched between the two GEMMs by launch.cu.
#pragma once

#include "cuda/sm90/gemm_args.cuh"

namespace sluice::cuda::sm90 {

struct QuantizeRowsArgs {
  RouteTables routes;
  const float* values;  // [P][stride]
  std::int64_t stride;  // columns, padded to 128; those behind the intermediate are zeros
  std::int32_t k_blocks;
  std::int64_t padded_rows;
  std::uint8_t* h;  // image [k_blocks][P][128]
  float* h_scale;   // [P]
};

cudaError_t launch_quantize_rows(const QuantizeRowsArgs& args, std::int32_t sm_count, cudaStream_t stream);

}  // namespace sluice::cuda::sm90
