// What the kernel for a few tokens makes of sums over K: FC1 the activated intermediate in the workspace, FC2 slot rows
// in shared memory, and of these the output.
//
// Called by all threads of a block, between barriers.
#pragma once

#include "cuda/sm90/activation.cuh"
#include "cuda/sm90/decode_input.cuh"

namespace sluice::cuda::sm90 {

// Scales (fp8_tensor) and bias of row r of item i; fetch_terms left them.
template <Format F>
__device__ __forceinline__ float finished(const Block& b, std::int32_t side, std::int32_t i, std::int32_t r, float sum,
                                          float token_scale) {
  const float* terms = b.terms(side) + i * 2 * kGroupRows + r;
  if constexpr (F == Format::fp8_tensor) sum = __fmul_rn(__fmul_rn(sum, token_scale), terms[0]);
  return b.k.sides[side].bias != nullptr ? sum + terms[kGroupRows] : sum;
}

// Into the row of the intermediate that begins at `row`: bf16; fp8_block the number itself, which readers quantise;
// fp8_tensor its code, where the packed weights expect it (launch.h, fp8_intermediate_column). Never all bits set, see
// load_features(): a NaN is the positive one, as the conversions have it.
template <Format F>
__device__ __forceinline__ void store_feature(void* h, std::int64_t row, std::int32_t feature, float inverse, float v) {
  if constexpr (F == Format::bf16) {
    ptx::store_relaxed(static_cast<std::uint16_t*>(h) + row + feature, __bfloat16_as_ushort(__float2bfloat16_rn(v)));
  } else if constexpr (F == Format::fp8_block) {
    ptx::store_relaxed(static_cast<std::uint32_t*>(h) + row + feature, v != v ? 0x7fffffffu : __float_as_uint(v));
  } else {
    const std::int32_t at = feature / 64 * 64 + feature / 8 % 4 * 16 + feature % 8 * 2 + feature / 32 % 2;
    ptx::store_relaxed(static_cast<std::uint8_t*>(h) + row + at, ptx::pack_e4m3(v * inverse, 0.0f) & 0xff);
  }
}

// A thread a feature of an item: the activated values of its routes.
template <Format F, bool Lean>
__device__ inline void finish_first(const Block& b, const Stretch& p) {
  const DecodeArgs& a = b.k.a;
  const std::int64_t stride = std::int64_t{b.k.sides[1].k_blocks} * block_elements(F);
  const float inverse = F == Format::fp8_tensor ? __fdiv_rn(1.0f, a.h_static_scale) : 0.0f;
#pragma unroll 1
  for (std::int32_t n = ptx::this_thread(); n < p.items * kFeatures; n += kDecodeThreads) {
    const std::int32_t i = n / kFeatures, f = n % kFeatures;
    const Item item = b.item(p, i);
    const std::int32_t first = b.t.first[item.chunk], rows = b.t.rows[item.chunk];
#pragma unroll 1
    for (std::int32_t c = 0; c < rows; ++c) {
      float sums[2];
      whole_sums(b, i, f * kChunkRows + c, kFeatures * kChunkRows, sums);
      const float gate = finished<F>(b, 0, i, f, sums[0], a.x_static_scale);
      const float up = finished<F>(b, 0, i, f + kFeatures, sums[1], a.x_static_scale);
      const float v = Lean || b.k.is_curve ? gate_curve(b.k.curve, gate, up) : other_activation(a.activation, gate, up);
      store_feature<F>(b.t.mine.h, (first + c) * stride, static_cast<std::int32_t>(item.row / 2 + f), inverse, v);
    }
  }
}

// Slot rows of this block: [place][items of a chunk][rows2] bf16.
__device__ __forceinline__ __nv_bfloat16* slot_row(const Block& b, std::int32_t place) {
  return reinterpret_cast<__nv_bfloat16*>(b.shared + b.k.s.slots) + place * b.k.s.most2 * b.k.s.rows2;
}

// A thread an output row of an item.
template <Format F>
__device__ inline void finish_second(const Block& b, const Stretch& p) {
  const DecodeArgs& a = b.k.a;
  const std::int32_t first_row = b.t.sides[1].begin;
#pragma unroll 1
  for (std::int32_t n = ptx::this_thread(); n < p.items * kGroupRows; n += kDecodeThreads) {
    const std::int32_t i = n / kGroupRows, r = n % kGroupRows;
    if (r >= b.k.s.rows2) continue;
    const Item item = b.item(p, i);
    const std::int32_t first = b.t.first[item.chunk], rows = b.t.rows[item.chunk];
#pragma unroll 1
    for (std::int32_t c = 0; c < rows; ++c) {
      float sum[1];
      whole_sums(b, i, r * kChunkRows + c, 0, sum);
      const __nv_bfloat16 v = __float2bfloat16_rn(finished<F>(b, 1, i, r, sum[0], a.h_static_scale));
      slot_row(b, first + c)[item.row - first_row + r] = v;
      if (a.stages.route_row == nullptr) continue;
      const std::int64_t padded = a.stages.route_row[b.t.route_of[first + c]];
      a.stages.slot_rows[padded * a.shape.hidden + item.row + r] = __bfloat16_as_ushort(v);
    }
  }
}

__device__ __forceinline__ void store_output(const DecodeArgs& a, std::int32_t row, std::int32_t column, float v) {
  const std::int64_t at = row * a.out_row_stride + column;
  if (a.out_bf16) {
    static_cast<__nv_bfloat16*>(a.out)[at] = __float2bfloat16_rn(v);
  } else {
    static_cast<float*>(a.out)[at] = v;
  }
}

// Whether sums over K become the output at once: all chunks are there, and the slots of a token fit in a warp.
__device__ __forceinline__ bool ends_at_once(const Block& b) {
  const DecodeArgs& a = b.k.a;
  return b.t.rounds2 == 1 && 32 % a.top_k == 0 && !a.routes && a.stages.route_row == nullptr;
}

// Then: a lane a slot and column of this block. The bits of finish_second and write_output.
template <Format F>
__device__ inline void write_sums(const Block& b) {
  const DecodeArgs& a = b.k.a;
  const std::int32_t slots = a.top_k, lane = ptx::this_thread() % 32, shift = __clz(slots) - 26;
  const std::int32_t wide = 1 << shift, slot = lane >> shift;  // columns of a warp
  const std::int32_t first_column = b.t.sides[1].begin;
  const std::int32_t columns = b.t.sides[1].end - first_column, pieces = (columns + wide - 1) >> shift;
#pragma unroll 1
  for (std::int32_t n = this_warp(); n < a.tokens * pieces; n += kDecodeWarps) {
    const std::int32_t row = static_cast<std::uint32_t>(n) / static_cast<std::uint32_t>(pieces),
                       column = (n - row * pieces) * wide + lane - slot * wide;
    const std::int32_t route = row * slots + slot;
    const bool here = b.t.place_of[route] >= 0 && column < columns;
    float product = 0.0f;
    if (here) {
      const std::int32_t group = b.k.s.rows2 == kGroupRows ? column / kGroupRows : column / kFeatures;
      const std::int32_t r = column - group * b.k.s.rows2;
      const std::int32_t i = b.t.chunk_of[route] * b.t.sides[1].each + group;
      float sum[1];
      whole_sums(b, i, r * kChunkRows + b.t.column_of[route], 0, sum);
      const float v = finished<F>(b, 1, i, r, sum[0], a.h_static_scale);
      product = __fmul_rn(b.t.weight[route], __bfloat162float(__float2bfloat16_rn(v)));
    }
    const unsigned all = __ballot_sync(0xffffffffu, here);
    float sum = 0.0f;
#pragma unroll 1
    for (std::int32_t from = lane - slot * wide; from < 32; from += wide) {
      const float next = __shfl_sync(0xffffffffu, product, from);
      if ((all >> from & 1) != 0) sum = __fadd_rn(sum, next);
    }
    if (slot == 0 && column < columns) store_output(a, row, first_column + column, sum);
  }
}

// The columns of this block: the sum over slots as finalize.h has it, or the slot rows themselves.
__device__ inline void write_output(const Block& b) {
  constexpr std::int32_t kAhead = 8;  // slots
  const DecodeArgs& a = b.k.a;
  const std::int32_t first_column = b.t.sides[1].begin, columns = b.t.sides[1].end - first_column;
  const std::int32_t slots = a.routes ? 1 : a.top_k;
  const std::int32_t rows = static_cast<std::int32_t>(a.tokens) * (a.routes ? a.top_k : 1);
#pragma unroll 1
  for (std::int32_t n = ptx::this_thread(); n < rows * columns; n += kDecodeThreads) {
    const std::int32_t row = b.t.sides[1].by_each.quotient(n / b.k.s.rows2), column = n - row * columns;
    float sum = 0.0f;
    for (std::int32_t first = 0; first < slots; first += kAhead) {
      float v[kAhead], weight[kAhead];
      bool here[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const std::int32_t route = row * slots + first + j, place = first + j < slots ? b.t.place_of[route] : -1;
        here[j] = place >= 0;
        v[j] = here[j] ? __bfloat162float(slot_row(b, place)[column]) : 0.0f;
        weight[j] = here[j] ? b.t.weight[route] : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (here[j]) sum = a.routes ? v[j] : __fadd_rn(sum, __fmul_rn(weight[j], v[j]));
      }
    }
    store_output(a, row, first_column + column, sum);
  }
}

}  // namespace sluice::cuda::sm90
