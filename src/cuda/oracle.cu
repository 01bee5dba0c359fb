#include <cuda_runtime.h>

#include <cfloat>

#include "cuda/oracle_kernels.h"
#include "cuda/status.h"
#include "numerics/bf16.h"
#include "numerics/e8m0.h"
#include "numerics/fp16.h"
#include "numerics/fp8.h"

// The number formats are the library's own constexpr functions, compiled for the device: the oracle shares its formats
// with the reference runner and nothing with the kernels it judges.
namespace sluice::cuda::oracle {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kGroup = 128;

__device__ float element(const void* data, DType type, std::int64_t i) {
  switch (type) {
    case DType::f32:
      return static_cast<const float*>(data)[i];
    case DType::f16:
      return to_float(static_cast<const Fp16*>(data)[i]);
    case DType::bf16:
      return to_float(static_cast<const Bf16*>(data)[i]);
    case DType::e4m3:
      return to_float(static_cast<const E4m3*>(data)[i]);
    case DType::e8m0:
      return to_float(static_cast<const E8m0*>(data)[i]);
    default:
      return 0.0f;
  }
}

__device__ float block_scale(const OracleMatrix& m, std::int64_t n, std::int64_t c) {
  const BlockScaleView& s = m.scale;
  if (s.data == nullptr) return 1.0f;
  return element(s.data, s.dtype, n / s.block_rows * s.row_stride + c / s.block_cols * s.col_stride);
}

// Whether row i has an expert here, and which.
__device__ bool expert_of(const Rows& r, std::int64_t i, std::int32_t* e) {
  const std::int64_t route = r.tokens[i / r.batch.top_k] * r.batch.top_k + i % r.batch.top_k;
  const std::int32_t id = static_cast<std::int32_t>(r.batch.ids[route]);
  *e = id - r.batch.first_slot;
  return id >= 0 && *e >= 0 && *e < r.local_experts;
}

__device__ float amax_of(const float* v, std::int64_t count) {
  float amax = 0.0f;
  for (std::int64_t c = 0; c < count; ++c) {
    const float m = fabsf(v[c]);
    if (m > amax) amax = m > FLT_MAX ? FLT_MAX : m;
  }
  return amax;
}

__device__ float rounded_code(float v, float scale) {
  const float finite = v > FLT_MAX ? FLT_MAX : (v < -FLT_MAX ? -FLT_MAX : v);
  return to_float(to_e4m3(__fdiv_rn(finite, scale)));
}

// Brings a row of fp32 values into the format that a GEMM reads, in place. One thread.
__device__ void encode(const Rows& r, float* row, float* scales, std::int64_t width, float static_scale) {
  if (r.format == RowFormat::bf16) {
    for (std::int64_t c = 0; c < width; ++c) row[c] = round_to_bf16(row[c]);
    return;
  }
  const std::int64_t group = r.format == RowFormat::fp8_group ? kGroup : width;
  for (std::int64_t g = 0; g * group < width; ++g) {
    const std::int64_t first = g * group, count = min(group, width - first);
    const float amax = amax_of(row + first, count);
    float scale = static_scale;
    if (r.format == RowFormat::fp8_group) scale = __fdiv_rn(fmaxf(amax, 1e-10f), 448.0f);
    if (r.format == RowFormat::fp8_dynamic) scale = amax == 0.0f ? 1.0f : fmaxf(__fdiv_rn(amax, 448.0f), FLT_MIN);
    scales[g] = scale;
    for (std::int64_t c = first; c < first + count; ++c) row[c] = rounded_code(row[c], scale);
  }
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
  encode(r, row, r.x_scales + i * ((width + kGroup - 1) / kGroup), width, r.scale1);
}

// One output of a GEMM: chains of S products in ascending order, rounded after every product and addition.
__device__ float dot(const Rows& r, const float* x, const float* x_scales, const OracleMatrix& m, std::int64_t n) {
  float total = 0.0f;
  for (std::int64_t begin = 0; begin < m.codes.cols; begin += r.segment) {
    const std::int64_t end = min(begin + r.segment, m.codes.cols);
    float chain = 0.0f;
    for (std::int64_t c = begin; c < end; ++c) {
      float w = element(m.codes.data, m.codes.dtype, n * m.codes.row_stride + c * m.codes.col_stride);
      if (r.format == RowFormat::bf16) w = round_to_bf16(__fmul_rn(w, m.tensor_scale));
      chain = __fadd_rn(chain, __fmul_rn(x[c], w));
    }
    if (r.block_scaled) chain = __fmul_rn(chain, __fmul_rn(x_scales[begin / kGroup], block_scale(m, n, begin)));
    total = __fadd_rn(total, chain);
  }
  if (r.format == RowFormat::fp8_static || r.format == RowFormat::fp8_dynamic) {
    total = __fmul_rn(__fmul_rn(total, x_scales[0]), __fmul_rn(block_scale(m, n, 0), m.tensor_scale));
  }
  return total;
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
  const float* scales = r.x_scales + i * ((width + kGroup - 1) / kGroup);
  const OracleExpert& w = r.experts[e];
  r.gate[at] = w.gate.codes.data == nullptr ? 0.0f : with_bias(dot(r, x, scales, w.gate, n), w.gate_bias, n);
  r.up[at] = with_bias(dot(r, x, scales, w.up, n), w.up_bias, n);
}

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ float at_most(float v, float limit) { return v > limit ? limit : v; }
__device__ float within(float v, float limit) { return v < -limit ? -limit : at_most(v, limit); }

__device__ float activated(const ActivationSpec& s, float g, float u) {
  switch (s.kind) {
    case ActivationKind::swiglu:
      return g * sigmoid(g) * u;
    case ActivationKind::geglu_erf:
      return 0.5f * g * (1.0f + erff(g * 0.70710678118654752f)) * u;
    case ActivationKind::geglu_tanh:
      return 0.5f * g * (1.0f + tanhf(0.79788456080286536f * (g + 0.044715f * g * g * g))) * u;
    case ActivationKind::swiglu_oai:
      return at_most(g, s.limit) * sigmoid(s.alpha * at_most(g, s.limit)) * (within(u, s.limit) + s.beta);
    case ActivationKind::swiglu_clamped:
      return at_most(g, s.limit) * sigmoid(at_most(g, s.limit)) * within(u, s.limit);
    case ActivationKind::swiglu_step:
      return at_most(g * sigmoid(g), s.limit) * within(u, s.limit);
    case ActivationKind::situ: {
      const float capped = s.beta * tanhf(g / s.beta) * sigmoid(g);
      return s.linear_beta == 0.0f ? capped * u : capped * (s.linear_beta * tanhf(u / s.linear_beta));
    }
    case ActivationKind::relu2:
      return u < 0.0f ? 0.0f : u * u;
  }
  return 0.0f;
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
  encode(r, row, r.a_scales + i * ((width + kGroup - 1) / kGroup), width, r.scale2);
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
  const float acc = dot(r, r.a + i * inner, r.a_scales + i * ((inner + kGroup - 1) / kGroup), w.down, n);
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
