#include <cuda_runtime.h>

#include "cuda/ops.h"
#include "cuda/reference_dot.cuh"

namespace sluice::cuda {
namespace {

constexpr unsigned kThreads = 128;

// Views have host member functions only, so kernels get their fields.
struct Rows {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  __device__ float at(std::int64_t r, std::int64_t c) const { return element(data, dtype, r * stride + c); }
  __device__ void set(std::int64_t r, std::int64_t c, float v) const {
    const std::int64_t i = r * stride + c;
    if (dtype == DType::f32) static_cast<float*>(const_cast<void*>(data))[i] = v;
    if (dtype == DType::bf16) static_cast<Bf16*>(const_cast<void*>(data))[i] = to_bf16(v);
  }
};

Rows rows_of(const ConstTensorView& v) { return {v.data, v.dtype, v.cols, v.row_stride}; }

dim3 grid_of(std::int64_t rows, std::int64_t cols) {
  return {static_cast<unsigned>((cols + kThreads - 1) / kThreads), static_cast<unsigned>(rows)};
}

__device__ std::int64_t column() { return blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; }

__global__ void linear_rows(Rows x, std::int64_t tokens, DotRule rule, float static_scale, float* rows, float* scales) {
  const std::int64_t t = column();
  if (t >= tokens) return;
  for (std::int64_t c = 0; c < x.cols; ++c) rows[t * x.cols + c] = x.at(t, c);
  encode(rule, rows + t * x.cols, scales + t * ((x.cols + kDotGroup - 1) / kDotGroup), x.cols, static_scale);
}

__global__ void linear_dots(DotRule rule, DotMatrix w, const float* bias, Rows y, bool accumulate, const float* rows,
                            const float* scales) {
  const std::int64_t n = column(), t = blockIdx.y, cols = w.codes.cols;
  if (n >= w.codes.rows) return;
  float v = dot(rule, rows + t * cols, scales + t * ((cols + kDotGroup - 1) / kDotGroup), w, n);
  if (bias != nullptr) v = __fadd_rn(v, bias[n]);
  y.set(t, n, accumulate ? __fadd_rn(y.at(t, n), v) : v);
}

__global__ void activate_kernel(ActivationSpec spec, Rows gate, Rows up, Rows out) {
  const std::int64_t c = column(), t = blockIdx.y;
  if (c < out.cols) out.set(t, c, activated(spec, gate.data == nullptr ? 0.0f : gate.at(t, c), up.at(t, c)));
}

__global__ void add_kernel(Rows into, Rows x) {
  const std::int64_t c = column(), t = blockIdx.y;
  if (c < into.cols) into.set(t, c, __fadd_rn(into.at(t, c), x.at(t, c)));
}

__global__ void add_gated_kernel(Rows into, Rows x, Rows gate) {
  const std::int64_t c = column(), t = blockIdx.y;
  if (c >= into.cols) return;
  into.set(t, c, __fadd_rn(into.at(t, c), __fmul_rn(sigmoid(gate.at(t, 0)), x.at(t, c))));
}

}  // namespace

cudaError_t launch_linear(const LinearLaunch& a, cudaStream_t stream) {
  if (a.x.rows == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((a.x.rows + kThreads - 1) / kThreads);
  linear_rows<<<blocks, kThreads, 0, stream>>>(rows_of(a.x), a.x.rows, a.rule, a.static_scale, a.rows, a.scales);
  linear_dots<<<grid_of(a.x.rows, a.weight.codes.rows), kThreads, 0, stream>>>(a.rule, a.weight, a.bias, rows_of(a.y),
                                                                               a.accumulate, a.rows, a.scales);
  return cudaGetLastError();
}

cudaError_t launch_activate(const ActivationSpec& spec, const ConstTensorView& gate, const ConstTensorView& up,
                            const TensorView& out, cudaStream_t stream) {
  if (out.rows == 0) return cudaSuccess;
  activate_kernel<<<grid_of(out.rows, out.cols), kThreads, 0, stream>>>(spec, rows_of(gate), rows_of(up), rows_of(out));
  return cudaGetLastError();
}

cudaError_t launch_add(const TensorView& into, const ConstTensorView& x, cudaStream_t stream) {
  if (into.rows == 0) return cudaSuccess;
  add_kernel<<<grid_of(into.rows, into.cols), kThreads, 0, stream>>>(rows_of(into), rows_of(x));
  return cudaGetLastError();
}

cudaError_t launch_add_gated(const TensorView& into, const ConstTensorView& x, const ConstTensorView& gate,
                             cudaStream_t stream) {
  if (into.rows == 0) return cudaSuccess;
  add_gated_kernel<<<grid_of(into.rows, into.cols), kThreads, 0, stream>>>(rows_of(into), rows_of(x), rows_of(gate));
  return cudaGetLastError();
}

}  // namespace sluice::cuda
