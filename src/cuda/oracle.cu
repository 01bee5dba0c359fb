#include <cuda_runtime.h>

#include "cuda/oracle_kernels.h"
#include "cuda/reference_dot.cuh"
#include "cuda/status.h"

namespace sluice::cuda::oracle {
namespace {

constexpr int kThreads = 128;
// Whether row i has an expert here, and which.
__device__ bool expert_of(const Rows& r, std::int64_t i, std::int32_t* e) {
  const std::int64_t route = r.tokens[i / r.batch.top_k] * r.batch.top_k + i % r.batch.top_k;
  const std::int32_t id = static_cast<std::int32_t>(r.batch.ids[route]);
  *e = id - r.batch.first_slot;
  return id >= 0 && *e >= 0 && *e < r.local_experts;
}

__global__ void make_input(Rows r) {
  const std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (i >= r.count) return;
  const std::int64_t token = r.tokens[i / r.batch.top_k], width = r.width;
  const float weight = r.layer.weight_on_input ? r.batch.weights[token * r.batch.top_k + i % r.batch.top_k] : 1.0f;
  float* row = r.x + i * width;
  for (std::int64_t c = 0; c < width; ++c) {
    row[c] = round_to_bf16(__fmul_rn(weight, to_float(r.hidden[token * r.hidden_stride + c])));
  }
  encode(r.rule, row, r.x_scales + i * ((width + kDotGroup - 1) / kDotGroup), width, r.scale1);
}

__device__ float with_bias(float v, const BiasView& b, std::int64_t n) {
  return b.data == nullptr ? v : __fadd_rn(v, element(b.data, b.dtype, n * b.stride));
}

__global__ void gemm1(Rows r) {
  const std::int64_t i = blockIdx.y, n = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  std::int32_t e = 0;
  if (n >= r.layer.intermediate || !expert_of(r, i, &e)) return;
  const std::int64_t width = r.width, at = i * r.layer.intermediate + n;
  const float* x = r.x + i * width;
  const float* scales = r.x_scales + i * ((width + kDotGroup - 1) / kDotGroup);
  const OracleExpert& w = r.experts[e];
  r.gate[at] = w.gate.codes.data == nullptr ? 0.0f : with_bias(dot(r.rule, x, scales, w.gate, n), w.gate_bias, n);
  r.up[at] = with_bias(dot(r.rule, x, scales, w.up, n), w.up_bias, n);
}

__global__ void activate_rows(Rows r) {
  const std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  std::int32_t e = 0;
  if (i >= r.count || !expert_of(r, i, &e)) return;
  const std::int64_t width = r.layer.intermediate;
  float* row = r.a + i * width;
  for (std::int64_t c = 0; c < width; ++c) {
    row[c] = activated(r.layer.activation, r.gate[i * width + c], r.up[i * width + c]);
  }
  encode(r.rule, row, r.a_scales + i * ((width + kDotGroup - 1) / kDotGroup), width, r.scale2);
}

__global__ void gemm2(Rows r) {
  const std::int64_t i = blockIdx.y, n = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (n >= r.width) return;
  const std::int64_t inner = r.layer.intermediate;
  float& out = r.slot_rows[i * r.width + n];
  std::int32_t e = 0;
  out = 0.0f;
  if (!expert_of(r, i, &e)) return;
  const OracleExpert& w = r.experts[e];
  const float acc = dot(r.rule, r.a + i * inner, r.a_scales + i * ((inner + kDotGroup - 1) / kDotGroup), w.down, n);
  out = round_to_bf16(with_bias(acc, w.down_bias, n));
}

__global__ void sum_slots(Rows r) {
  const std::int64_t i = blockIdx.y, n = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  const std::int64_t width = r.width;
  if (n >= width) return;
  float sum = 0.0f;
  for (std::int32_t s = 0; s < r.batch.top_k; ++s) {
    std::int32_t e = 0;
    const std::int64_t row = i * r.batch.top_k + s;
    if (!expert_of(r, row, &e)) continue;
    const float weight = r.layer.weight_on_input ? 1.0f : r.batch.weights[r.tokens[i] * r.batch.top_k + s];
    sum = __fadd_rn(sum, __fmul_rn(weight, r.slot_rows[row * width + n]));
  }
  r.sum[i * width + n] = sum;
}

unsigned blocks(std::int64_t count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); }

}  // namespace

void compute(const Rows& r) {
  const auto rows = static_cast<unsigned>(r.count), tokens = static_cast<unsigned>(r.count / r.batch.top_k);
  const unsigned wide = blocks(r.width);
  make_input<<<blocks(r.count), kThreads>>>(r);
  gemm1<<<dim3(blocks(r.layer.intermediate), rows), kThreads>>>(r);
  activate_rows<<<blocks(r.count), kThreads>>>(r);
  gemm2<<<dim3(wide, rows), kThreads>>>(r);
  sum_slots<<<dim3(wide, tokens), kThreads>>>(r);
  check(cudaGetLastError(), "starting the oracle");
  check(cudaDeviceSynchronize(), "the oracle");
}

}  // namespace sluice::cuda::oracle
