// Test data for the expert GEMM bench: random weights, routing tables made on the host, images of x, and the naive
// kernels that results are compared with.
//
// Included by expert_gemm.cu only. Random numbers are a hash of (seed, index), so that nothing has to be copied.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "cuda/sm90/launch.h"

namespace sluice::bench {

using cuda::sm90::Format;

__device__ inline std::uint32_t hash(std::uint64_t i, std::uint32_t seed) {
  std::uint64_t x = i * 0x9e3779b97f4a7c15ull + seed * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return static_cast<std::uint32_t>(x ^ (x >> 31));
}

// Roughly normal, variance 1.
__device__ inline float normal(std::uint64_t i, std::uint32_t seed) {
  float sum = 0.0f;
  for (int p = 0; p < 4; ++p) sum += (hash(4 * i + p, seed) >> 8) * (1.0f / 16777216.0f) - 0.5f;
  return sum * 1.7320508f;
}

__device__ inline float e4m3_value(std::uint8_t code) {
  __nv_fp8_e4m3 v;
  v.__x = code;
  return static_cast<float>(v);
}

__device__ inline std::uint8_t e4m3_code(float v) { return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3); }

__global__ void fill_bf16(__nv_bfloat16* p, std::int64_t n, float scale, std::uint32_t seed) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    p[i] = __float2bfloat16(scale * normal(i, seed));
  }
}

__global__ void fill_e4m3(std::uint8_t* p, std::int64_t n, float scale, std::uint32_t seed) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    p[i] = e4m3_code(scale * normal(i, seed));
  }
}

__global__ void fill_uniform(float* p, std::int64_t n, float low, float high, std::uint32_t seed) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    p[i] = low + (high - low) * (hash(i, seed) >> 8) * (1.0f / 16777216.0f);
  }
}

// Quantises one row of x (or copies it) into the image; a block per routed row. token_of_row is -1 for gaps.
struct ImageArgs {
  const __nv_bfloat16* x;  // [T, H]
  const std::int32_t* token_of_row;
  std::int64_t padded_rows;
  std::int32_t hidden, k_blocks;
  Format format;
  std::uint8_t* image;
  float* scale;
  float static_scale;
};

__global__ void make_image(ImageArgs a) {
  const std::int64_t row = blockIdx.x;
  const std::int32_t token = a.token_of_row[row];
  if (token < 0) return;
  const __nv_bfloat16* x = a.x + static_cast<std::int64_t>(token) * a.hidden;
  const std::int32_t elements = cuda::sm90::block_elements(a.format);
  if (a.format == Format::fp8_tensor && threadIdx.x == 0) a.scale[row] = a.static_scale;
  for (std::int32_t kb = threadIdx.x / 32; kb < a.k_blocks; kb += blockDim.x / 32) {
    const std::int32_t lane = threadIdx.x % 32;
    if (a.format == Format::bf16) {
      for (std::int32_t c = lane; c < 64; c += 32) {
        const std::int32_t col = kb * elements + c;
        const __nv_bfloat16 v = col < a.hidden ? x[col] : __float2bfloat16(0.0f);
        const std::int64_t at = cuda::sm90::image_offset(kb, row, c / 8, a.padded_rows) + c % 8 * 2;
        *reinterpret_cast<__nv_bfloat16*>(a.image + at) = v;
      }
      continue;
    }
    float v[4];
    float amax = 0.0f;
    for (int i = 0; i < 4; ++i) {
      const std::int32_t col = kb * elements + lane + 32 * i;
      v[i] = col < a.hidden ? __bfloat162float(x[col]) : 0.0f;
      amax = fmaxf(amax, fabsf(v[i]));
    }
    for (int bit = 16; bit > 0; bit /= 2) amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, bit));
    const float scale = a.format == Format::fp8_block ? __fdiv_rn(fmaxf(amax, 1e-10f), 448.0f) : a.static_scale;
    if (a.format == Format::fp8_block && lane == 0) a.scale[kb * a.padded_rows + row] = scale;
    for (int i = 0; i < 4; ++i) {
      const std::int32_t c = lane + 32 * i;
      a.image[cuda::sm90::image_offset(kb, row, c / 16, a.padded_rows) + c % 16] = e4m3_code(__fdiv_rn(v[i], scale));
    }
  }
}

// Element `col` of row `row` of an image, as the value of its code.
__device__ inline float image_value(const std::uint8_t* image, Format format, std::int64_t padded_rows,
                                    std::int64_t row, std::int32_t col) {
  if (format == Format::bf16) {
    const std::int64_t at = cuda::sm90::image_offset(col / 64, row, col % 64 / 8, padded_rows) + col % 8 * 2;
    return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(image + at));
  }
  return e4m3_value(image[cuda::sm90::image_offset(col / 128, row, col % 128 / 16, padded_rows) + col % 16]);
}

// One weight matrix set [E][rows][cols] with scales as MatrixSource has them.
struct Weights {
  const void* codes;
  const float* scale;
  const float* bias;
  std::int32_t rows, cols;
};

__device__ inline float weight_value(const Weights& w, Format format, std::int32_t expert, std::int32_t n,
                                     std::int32_t c) {
  const std::int64_t at = (static_cast<std::int64_t>(expert) * w.rows + n) * w.cols + c;
  if (format == Format::bf16) return __bfloat162float(static_cast<const __nv_bfloat16*>(w.codes)[at]);
  return e4m3_value(static_cast<const std::uint8_t*>(w.codes)[at]);
}

// Dot product of plain values x[cols] with row n, scales applied as recipe.h says; a warp. x_scale: [groups] or [1].
__device__ inline float naive_dot(const Weights& w, Format format, std::int32_t expert, std::int32_t n, const float* x,
                                  const float* x_scale) {
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t groups = (w.cols + 127) / 128;
  const std::int32_t scale_rows = (w.rows + 127) / 128;
  float total = 0.0f;
  for (std::int32_t g = 0; g < groups; ++g) {
    float chain = 0.0f;
    for (std::int32_t c = g * 128 + lane; c < min(w.cols, g * 128 + 128); c += 32) {
      chain += x[c] * weight_value(w, format, expert, n, c);
    }
    for (int bit = 16; bit > 0; bit /= 2) chain += __shfl_xor_sync(~0u, chain, bit);
    if (format == Format::fp8_block) {
      chain *= x_scale[g] * w.scale[(static_cast<std::int64_t>(expert) * scale_rows + n / 128) * groups + g];
    }
    total += chain;
  }
  if (format == Format::fp8_tensor)
    total = total * x_scale[0] * w.scale[static_cast<std::int64_t>(expert) * w.rows + n];
  return w.bias != nullptr ? total + w.bias[static_cast<std::int64_t>(expert) * w.rows + n] : total;
}

// The formulas of moe/spec.h.
__device__ inline float naive_activation(const ActivationSpec& s, float gate, float up) {
  const auto sig = [](float v) { return 1.0f / (1.0f + expf(-v)); };
  const float g = fminf(gate, s.limit);
  const float u = fmaxf(fminf(up, s.limit), -s.limit);
  switch (s.kind) {
    case ActivationKind::swiglu:
      return gate * sig(gate) * up;
    case ActivationKind::geglu_erf:
      return 0.5f * gate * (1.0f + erff(gate * 0.70710678f)) * up;
    case ActivationKind::geglu_tanh:
      return 0.5f * gate * (1.0f + tanhf(0.79788456f * (gate + 0.044715f * gate * gate * gate))) * up;
    case ActivationKind::swiglu_oai:
      return g * sig(s.alpha * g) * (u + s.beta);
    case ActivationKind::swiglu_clamped:
      return g * sig(g) * u;
    case ActivationKind::swiglu_step:
      return fminf(gate * sig(gate), s.limit) * u;
    case ActivationKind::situ:
      return s.beta * tanhf(gate / s.beta) * sig(gate) * (s.linear_beta * tanhf(up / s.linear_beta));
    case ActivationKind::relu2:
      return fmaxf(up, 0.0f) * fmaxf(up, 0.0f);
  }
  return 0.0f;
}

struct NaiveArgs {
  Format format;
  ActivationSpec activation;
  std::int32_t hidden, intermediate;
  const std::int32_t* rows;     // [count] padded rows to check
  const std::int32_t* experts;  // [count]
  std::int64_t padded_rows;
  const std::uint8_t* image;
  const float* x_scale;
  float h_static_scale;  // 0: per row
  Weights gate, up, down;
  float* values;  // scratch [count][max(H, I padded to 128)]
  float* scales;  // scratch [count][groups]
  float* h;       // [count][I] activated values
  float* out;     // [count][H]
};

// Plain x and its scales of row i.
__global__ void naive_load(NaiveArgs a) {
  const std::int64_t i = blockIdx.x;
  const std::int64_t row = a.rows[i];
  for (std::int32_t c = threadIdx.x; c < a.hidden; c += blockDim.x) {
    a.values[i * a.hidden + c] = image_value(a.image, a.format, a.padded_rows, row, c);
  }
  const std::int32_t groups = (a.hidden + 127) / 128;
  for (std::int32_t g = threadIdx.x; g < groups; g += blockDim.x) {
    a.scales[i * groups + g] = a.format == Format::bf16         ? 1.0f
                               : a.format == Format::fp8_tensor ? a.x_scale[row]
                                                                : a.x_scale[g * a.padded_rows + row];
  }
}

// A warp per (row, feature): grid (count, ...).
__global__ void naive_first(NaiveArgs a) {
  const std::int64_t i = blockIdx.x;
  const std::int32_t groups = (a.hidden + 127) / 128;
  for (std::int32_t f = blockIdx.y * 8 + threadIdx.x / 32; f < a.intermediate; f += gridDim.y * 8) {
    const float* x = a.values + i * a.hidden;
    const float* s = a.scales + i * groups;
    const float g = a.gate.codes ? naive_dot(a.gate, a.format, a.experts[i], f, x, s) : 0.0f;
    const float u = naive_dot(a.up, a.format, a.experts[i], f, x, s);
    if (threadIdx.x % 32 == 0) a.h[i * a.intermediate + f] = naive_activation(a.activation, g, u);
  }
}

// Rounds h in place to plain values, scales beside (into `scales` [count][groups of I]); a block of 128 per row.
__global__ void naive_quantize(NaiveArgs a) {
  __shared__ float row_amax;
  const std::int64_t i = blockIdx.x;
  float* h = a.h + i * a.intermediate;
  const std::int32_t groups = (a.intermediate + 127) / 128;
  if (threadIdx.x == 0) {
    row_amax = 0.0f;
    for (std::int32_t c = 0; c < a.intermediate; ++c) row_amax = fmaxf(row_amax, fabsf(h[c]));
  }
  __syncthreads();
  for (std::int32_t g = threadIdx.x; g < groups; g += blockDim.x) {
    float amax = 0.0f;
    for (std::int32_t c = g * 128; c < min(a.intermediate, g * 128 + 128); ++c) amax = fmaxf(amax, fabsf(h[c]));
    float scale = fmaxf(amax, 1e-10f) / 448.0f;
    if (a.format == Format::fp8_tensor) scale = a.h_static_scale > 0.0f ? a.h_static_scale : row_amax / 448.0f;
    a.scales[i * groups + g] = scale;
    for (std::int32_t c = g * 128; c < min(a.intermediate, g * 128 + 128); ++c) {
      h[c] = a.format == Format::bf16 ? __bfloat162float(__float2bfloat16(h[c])) : e4m3_value(e4m3_code(h[c] / scale));
    }
  }
}

__global__ void naive_second(NaiveArgs a) {
  const std::int64_t i = blockIdx.x;
  const std::int32_t groups = (a.intermediate + 127) / 128;
  for (std::int32_t n = blockIdx.y * 8 + threadIdx.x / 32; n < a.hidden; n += gridDim.y * 8) {
    const float y = naive_dot(a.down, a.format, a.experts[i], n, a.h + i * a.intermediate, a.scales + i * groups);
    if (threadIdx.x % 32 == 0) a.out[i * a.hidden + n] = y;
  }
}

// Sums of (got - want)^2 and want^2; NaN where an output was not written.
__global__ void compare(NaiveArgs a, const __nv_bfloat16* slot_rows, double* sums) {
  double error = 0.0, norm = 0.0;
  const std::int64_t i = blockIdx.x;
  for (std::int32_t n = threadIdx.x; n < a.hidden; n += blockDim.x) {
    const float want = a.out[i * a.hidden + n];
    const float got = __bfloat162float(slot_rows[static_cast<std::int64_t>(a.rows[i]) * a.hidden + n]);
    error += static_cast<double>(got - want) * (got - want);
    norm += static_cast<double>(want) * want;
  }
  atomicAdd(sums, error);
  atomicAdd(sums + 1, norm);
}

}  // namespace sluice::bench
