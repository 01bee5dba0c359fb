#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "cuda/finalize.h"
#include "cuda/launch.cuh"

namespace sluice::cuda {
namespace {

constexpr int kColumns = 8;  // of a thread: one 16-byte load a slot
constexpr int kThreads = 128;
constexpr int kAhead = 8;  // slot rows of a token loaded before the first is used

__device__ void add_scaled(float (&sum)[kColumns], const uint4& row, float weight) {
  const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(&row);
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    const float2 v = __bfloat1622float2(pairs[i]);
    sum[2 * i] = __fadd_rn(sum[2 * i], __fmul_rn(weight, v.x));
    sum[2 * i + 1] = __fadd_rn(sum[2 * i + 1], __fmul_rn(weight, v.y));
  }
}

// `wide`: all 8 columns are inside the row and the address takes 16-byte stores.
__device__ void store(const FinalizeArgs& a, std::int64_t row, std::int64_t column, const float (&v)[kColumns],
                      bool wide) {
  const std::int64_t at = row * a.out_row_stride + column;
  if (a.out_bf16) {
    auto* out = static_cast<__nv_bfloat16*>(a.out) + at;
    __nv_bfloat162 pairs[kColumns / 2];
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) pairs[i] = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
    if (wide) {
      *reinterpret_cast<uint4*>(out) = *reinterpret_cast<uint4*>(pairs);
    } else {
      for (int i = 0; i < kColumns && column + i < a.width; ++i) out[i] = __float2bfloat16_rn(v[i]);
    }
    return;
  }
  auto* out = static_cast<float*>(a.out) + at;
  if (wide) {
    reinterpret_cast<float4*>(out)[0] = make_float4(v[0], v[1], v[2], v[3]);
    reinterpret_cast<float4*>(out)[1] = make_float4(v[4], v[5], v[6], v[7]);
  } else {
    for (int i = 0; i < kColumns && column + i < a.width; ++i) out[i] = v[i];
  }
}

__device__ uint4 load_row(const FinalizeArgs& a, std::int32_t row, std::int64_t column) {
  const auto* rows = static_cast<const __nv_bfloat16*>(a.slot_rows);
  return __ldcs(reinterpret_cast<const uint4*>(rows + static_cast<std::int64_t>(row) * a.slot_row_stride + column));
}

// Up to kAhead slots of a token.
struct Slots {
  std::int32_t row[kAhead];
  float weight[kAhead];

  __device__ void load(const FinalizeArgs& a, std::int64_t token, std::int32_t first) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::int64_t route = token * a.top_k + first + i;
      row[i] = first + i < a.top_k ? a.route_row[route] : -1;
      weight[i] = first + i < a.top_k && a.weights != nullptr ? a.weights[route] : 1.0f;
    }
  }

  __device__ void add_to(float (&sum)[kColumns], const FinalizeArgs& a, std::int64_t column) const {
    uint4 rows[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (row[i] >= 0) rows[i] = load_row(a, row[i], column);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (row[i] >= 0) add_scaled(sum, rows[i], weight[i]);
    }
  }
};

// One thread: 8 columns of one token; a block takes neighbouring columns. Bound by reading T k H bf16 once. Rows and
// weights are there before the kernel starts: those of R, which the kernel before this one has waited for.
__global__ void __launch_bounds__(kThreads) finalize_sum(const __grid_constant__ FinalizeArgs a, bool wide) {
  const std::int64_t column = (blockIdx.y * static_cast<std::int64_t>(kThreads) + threadIdx.x) * kColumns;
  Slots slots;
  slots.load(a, blockIdx.x, 0);
  wait_for_previous_kernel();
  if (column >= a.width) return;
  for (std::int64_t t = blockIdx.x; t < a.tokens; t += gridDim.x) {
    float sum[kColumns] = {};
    if (t != blockIdx.x) slots.load(a, t, 0);
    slots.add_to(sum, a, column);
    for (std::int32_t first = kAhead; first < a.top_k; first += kAhead) {
      slots.load(a, t, first);
      slots.add_to(sum, a, column);
    }
    store(a, t, column, sum, wide && column + kColumns <= a.width);
  }
}

__global__ void __launch_bounds__(kThreads) finalize_routes(const __grid_constant__ FinalizeArgs a, bool wide) {
  wait_for_previous_kernel();
  const std::int64_t column = (blockIdx.y * static_cast<std::int64_t>(kThreads) + threadIdx.x) * kColumns;
  if (column >= a.width) return;
  for (std::int64_t route = blockIdx.x; route < a.tokens * a.top_k; route += gridDim.x) {
    float row[kColumns] = {};
    const std::int32_t from = a.route_row[route];
    if (from >= 0) {
      const uint4 packed = load_row(a, from, column);
      const auto* values = reinterpret_cast<const __nv_bfloat16*>(&packed);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) row[i] = __bfloat162float(values[i]);
    }
    store(a, route, column, row, wide && column + kColumns <= a.width);
  }
}

}  // namespace

cudaError_t launch_finalize(const FinalizeArgs& args, cudaStream_t stream) {
  if (args.tokens == 0) return cudaSuccess;
  constexpr std::int64_t kMostRowBlocks = 1 << 20;
  const std::int64_t rows = args.routes ? args.tokens * args.top_k : args.tokens;
  const std::int64_t columns = (args.width + kThreads * kColumns - 1) / (kThreads * kColumns);
  const std::int64_t element = args.out_bf16 ? 2 : 4;
  const bool wide = args.out_row_stride * element % 16 == 0 && reinterpret_cast<std::uintptr_t>(args.out) % 16 == 0;
  const dim3 grid(static_cast<unsigned>(std::min(rows, kMostRowBlocks)), static_cast<unsigned>(columns));
  return launch_dependent(args.routes ? finalize_routes : finalize_sum, grid, dim3(kThreads), 0, stream, args, wide);
}

}  // namespace sluice::cuda
