// The accumulation and the formats of moe/recipe.h as device functions of one thread: what the oracle and the dense
// projections of the CUDA backend are made of. The number formats are the library's own constexpr functions compiled
// for the device, so the bits are those of the reference runner; nothing is shared with the fast kernels.
#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>

#include "cuda/reference_dot.h"
#include "numerics/bf16.h"
#include "numerics/e8m0.h"
#include "numerics/fp16.h"
#include "numerics/fp8.h"

namespace sluice::cuda {

__device__ inline float element(const void* data, DType type, std::int64_t i) {
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

__device__ inline float block_scale(const DotMatrix& m, std::int64_t n, std::int64_t c) {
  const BlockScaleView& s = m.scale;
  if (s.data == nullptr) return 1.0f;
  return element(s.data, s.dtype, n / s.block_rows * s.row_stride + c / s.block_cols * s.col_stride);
}

__device__ inline float amax_of(const float* v, std::int64_t count) {
  float amax = 0.0f;
  for (std::int64_t c = 0; c < count; ++c) {
    const float m = fabsf(v[c]);
    if (m > amax) amax = m > FLT_MAX ? FLT_MAX : m;
  }
  return amax;
}

__device__ inline float rounded_code(float v, float scale) {
  const float finite = v > FLT_MAX ? FLT_MAX : (v < -FLT_MAX ? -FLT_MAX : v);
  return to_float(to_e4m3(__fdiv_rn(finite, scale)));
}

// Brings a row of fp32 values into the format that a GEMM reads, in place; scales [ceil(width / 128)], one used where
// the row has one.
__device__ inline void encode(const DotRule& rule, float* row, float* scales, std::int64_t width, float static_scale) {
  if (rule.format == RowForm::f32) return;
  if (rule.format == RowForm::bf16) {
    for (std::int64_t c = 0; c < width; ++c) row[c] = round_to_bf16(row[c]);
    return;
  }
  const std::int64_t group = rule.format == RowForm::fp8_group ? kDotGroup : width;
  for (std::int64_t g = 0; g * group < width; ++g) {
    const std::int64_t first = g * group, count = min(group, width - first);
    const float amax = amax_of(row + first, count);
    float scale = static_scale;
    if (rule.format == RowForm::fp8_group) scale = __fdiv_rn(fmaxf(amax, 1e-10f), 448.0f);
    if (rule.format == RowForm::fp8_dynamic) scale = amax == 0.0f ? 1.0f : fmaxf(__fdiv_rn(amax, 448.0f), FLT_MIN);
    scales[g] = scale;
    for (std::int64_t c = first; c < first + count; ++c) row[c] = rounded_code(row[c], scale);
  }
}

// The weight of a product: codes alone where their scales act on sums, else the value, rounded where the rule says so.
__device__ inline float operand(const DotRule& rule, const DotMatrix& m, std::int64_t n, std::int64_t c) {
  const float code = element(m.codes.data, m.codes.dtype, n * m.codes.row_stride + c * m.codes.col_stride);
  if (rule.format != RowForm::f32 && rule.format != RowForm::bf16) return code;
  const float value = __fmul_rn(__fmul_rn(code, block_scale(m, n, c)), m.tensor_scale);
  return rule.format == RowForm::bf16 ? round_to_bf16(value) : value;
}

// Output n of a GEMM, without bias: chains of S products in ascending order, rounded after every product and addition.
__device__ inline float dot(const DotRule& rule, const float* x, const float* x_scales, const DotMatrix& m,
                            std::int64_t n) {
  float total = 0.0f;
  for (std::int64_t begin = 0; begin < m.codes.cols; begin += rule.segment) {
    const std::int64_t end = min(begin + rule.segment, m.codes.cols);
    float chain = 0.0f;
    for (std::int64_t c = begin; c < end; ++c) chain = __fadd_rn(chain, __fmul_rn(x[c], operand(rule, m, n, c)));
    if (rule.format == RowForm::fp8_group) {
      chain = __fmul_rn(chain, __fmul_rn(x_scales[begin / kDotGroup], block_scale(m, n, begin)));
    }
    total = __fadd_rn(total, chain);
  }
  if (rule.format == RowForm::fp8_static || rule.format == RowForm::fp8_dynamic) {
    total = __fmul_rn(__fmul_rn(total, x_scales[0]), __fmul_rn(block_scale(m, n, 0), m.tensor_scale));
  }
  return total;
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float at_most(float v, float limit) { return v > limit ? limit : v; }
__device__ inline float within(float v, float limit) { return v < -limit ? -limit : at_most(v, limit); }

// moe/spec.h.
__device__ inline float activated(const ActivationSpec& s, float g, float u) {
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

}  // namespace sluice::cuda
