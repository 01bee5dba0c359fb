// What the kernel for a few tokens reads before it multiplies: the routes, the rows of x, scales and biases, and
// between the GEMMs the intermediate. Quantises both with the bits of the other kernels.
//
// Called by all threads of a block, unless it says otherwise.
#pragma once

#include "cuda/route_input.cuh"
#include "cuda/sm90/decode_stream.cuh"

namespace sluice::cuda::sm90 {

// What a lane has of the routing: its route's expert, -1 where that is skipped, and weight. Asked for before anything
// else.
struct LaneRoute {
  std::int32_t id = -1, valid;
  float weight = 1.0f;

  __device__ explicit LaneRoute(const DecodeArgs& a) : valid(static_cast<std::int32_t>(a.tokens)) {
    const std::int32_t lane = ptx::this_thread() % 32, routes = valid * a.top_k;
    if (lane < routes) id = a.ids[lane];
    if (a.valid_tokens != nullptr) valid = max(*a.valid_tokens, 0);
    if (a.sum_weights != nullptr && lane < routes) weight = a.sum_weights[lane];
  }
  __device__ std::int32_t expert(const DecodeArgs& a, const Divisor& by_top_k) const {
    const std::int32_t lane = ptx::this_thread() % 32, e = id - a.first_slot;
    return id >= 0 && e >= 0 && e < a.shape.experts && by_top_k.quotient(lane) < valid ? e : -1;
  }
};

// Stretches of FC2: as many chunks as have room for their rows and their sums. One lane.
__device__ inline void cut_rounds(const DecodeKernel& k, DecodeTables& t) {
  const std::int32_t most_chunks = k.s.cap2 / k.s.most2;
  std::int32_t round = 0, rows = 0;
  t.round_chunk[0] = 0;
  for (std::int32_t c = 0; c < t.chunks; ++c) {
    if (rows + t.rows[c] > k.s.h_rows || c - t.round_chunk[round] == most_chunks) {
      t.round_chunk[++round] = c;
      rows = 0;
    }
    rows += t.rows[c];
  }
  t.round_chunk[++round] = t.chunks;
  t.rounds2 = round;
}

// One warp: sorts the routes by expert and cuts them into chunks.
__device__ inline void make_tables(const DecodeKernel& k, DecodeTables& t, const LaneRoute& route) {
  const std::int32_t lane = ptx::this_thread() % 32, routes = static_cast<std::int32_t>(k.a.tokens) * k.a.top_k;
  const std::int32_t expert = route.expert(k.a, k.s.by_top_k);
  const bool here = expert >= 0;
  const unsigned same = __match_any_sync(0xffffffffu, expert), before = (1u << lane) - 1u;
  const std::int32_t rank = __popc(same & before);
  const bool starts = here && rank % k.s.chunk_rows == 0;
  std::int32_t place = 0, chunk = 0;
#pragma unroll 4
  for (std::int32_t j = 0; j < routes; ++j) {
    const std::int32_t other = __shfl_sync(0xffffffffu, expert, j);
    const bool first = other >= 0 && (other < expert || (other == expert && j < lane));
    place += first ? 1 : 0;
    chunk += __shfl_sync(0xffffffffu, starts ? 1 : 0, j) != 0 && first ? 1 : 0;
  }
  if (starts) {
    t.expert[chunk] = expert;
    t.first[chunk] = place;
    t.rows[chunk] = min(k.s.chunk_rows, __popc(same) - rank);
  }
  if (here) {
    t.route_of[place] = lane;
    t.row_at[place] = k.s.by_top_k.quotient(lane) * k.s.x_stride;
  }
  t.place_of[lane] = here ? place : -1;
  t.weight[lane] = route.weight;
  const std::int32_t places = __popc(__ballot_sync(0xffffffffu, here));
  const std::int32_t chunks = __popc(__ballot_sync(0xffffffffu, starts));
  if (lane != 0) return;
  t.places = places;
  t.chunks = chunks;
  if (places <= k.s.h_rows && chunks * k.s.most2 <= k.s.cap2) {
    t.rounds2 = 1;
    t.round_chunk[0] = 0;
    t.round_chunk[1] = chunks;
  } else {
    cut_rounds(k, t);
  }
}

// All rows of x as they are, zeros behind H; complete after ptx::copies_wait() and a barrier.
__device__ inline void fetch_x(const Block& b) {
  const DecodeArgs& a = b.k.a;
  const std::int32_t columns = b.k.sides[0].k_blocks * block_elements(a.shape.format);
  const auto* from = static_cast<const __nv_bfloat16*>(a.hidden);
  const bool wide = a.hidden_row_stride % 8 == 0 && reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
  auto* to = reinterpret_cast<__nv_bfloat16*>(b.shared);
#pragma unroll 1
  for (std::int32_t row = 0; row < a.tokens; ++row) {
#pragma unroll 1
    for (std::int32_t c = ptx::this_thread() * 8; c < columns; c += kDecodeThreads * 8) {
      if (c >= a.shape.hidden) {
        *reinterpret_cast<uint4*>(to + c) = make_uint4(0, 0, 0, 0);
      } else if (wide) {
        ptx::copy_ahead(to + c, from + c);
      } else {
#pragma unroll 1
        for (std::int32_t e = c; e < c + 8; ++e) to[e] = from[e];
      }
    }
    from += a.hidden_row_stride;
    to += b.k.s.x_stride / 2;
  }
}

// Four numbers of x, weighted where weights go into the input.
struct FourNumbers {
  float v[4];

  __device__ FourNumbers(const DecodeArgs& a, const uint2& packed, float weight) {
    v[0] = __uint_as_float(packed.x << 16);
    v[1] = __uint_as_float(packed.x & 0xffff0000u);
    v[2] = __uint_as_float(packed.y << 16);
    v[3] = __uint_as_float(packed.y & 0xffff0000u);
    if (a.input_weights == nullptr) return;
#pragma unroll
    for (float& x : v) x = __bfloat162float(__float2bfloat16_rn(__fmul_rn(weight, x)));
  }
};

__device__ __forceinline__ float weight_of_row(const DecodeArgs& a, std::int32_t row) {
  return a.input_weights != nullptr ? a.input_weights[row] : 1.0f;
}

// bf16: rows times their weight, in place.
__device__ inline void weigh_x(const Block& b) {
  const DecodeArgs& a = b.k.a;
  if (a.input_weights == nullptr) return;
#pragma unroll 1
  for (std::int32_t row = 0; row < a.tokens; ++row) {
    const float weight = weight_of_row(a, row);
    auto* at = reinterpret_cast<uint2*>(b.shared + row * b.k.s.x_stride);
#pragma unroll 1
    for (std::int32_t i = ptx::this_thread(); i < b.k.sides[0].k_blocks * 16; i += kDecodeThreads) {
      const FourNumbers x(a, at[i], weight);
      at[i] = make_uint2(ptx::pack_bf16(x.v[0], x.v[1]), ptx::pack_bf16(x.v[2], x.v[3]));
    }
  }
}

// fp8: rows become the f16 of their codes, in place, and scales behind them. 16 lanes a K block, a lane 8 numbers; the
// two K blocks of a warp go on together.
template <Format F>
__device__ inline void quantise_x(const Block& b) {
  constexpr std::int32_t kLanes = 16;
  const DecodeArgs& a = b.k.a;
  const std::int32_t k_blocks = b.k.sides[0].k_blocks, blocks = static_cast<std::int32_t>(a.tokens) * k_blocks;
  const std::int32_t c = ptx::this_thread() % kLanes;
#pragma unroll 1
  for (std::int32_t n = ptx::this_thread() / kLanes; n / 2 * 2 < blocks; n += kDecodeThreads / kLanes) {
    const std::int32_t inside = min(n, blocks - 1), row = b.k.s.by_k_blocks1.quotient(inside);
    const std::int32_t kb = inside - row * k_blocks;
    unsigned char* x = b.shared + row * b.k.s.x_stride;
    auto* at = reinterpret_cast<uint4*>(x + kb * 256 + c * 16);
    const uint4 packed = *at;
    const float weight = weight_of_row(a, row);
    const FourNumbers low(a, make_uint2(packed.x, packed.y), weight), high(a, make_uint2(packed.z, packed.w), weight);
    float amax = 0.0f;
    bool number = true;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      amax = fmaxf(amax, fmaxf(counted_magnitude(low.v[i]), counted_magnitude(high.v[i])));
      number = number && low.v[i] == low.v[i] && high.v[i] == high.v[i];
    }
    float scale = a.x_static_scale;
    if constexpr (F == Format::fp8_block) {
#pragma unroll
      for (int d = 1; d < kLanes; d *= 2) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, d));
      scale = __fdiv_rn(fmaxf(amax, kGroupAmaxFloor), kE4m3Largest);
    }
    const float inverse = __fdiv_rn(1.0f, scale);
    const bool exact = number && reciprocal_is_exact(amax, scale, inverse);
    const std::uint32_t first = e4m3_codes(low.v, scale, inverse, exact);
    const std::uint32_t second = e4m3_codes(high.v, scale, inverse, exact);
    if (n >= blocks) continue;
    if (F == Format::fp8_block && c == 0) reinterpret_cast<float*>(x + k_blocks * 256)[kb] = scale;
    *at = make_uint4(ptx::f16_of_codes(first), ptx::f16_of_codes(first >> 16), ptx::f16_of_codes(second),
                     ptx::f16_of_codes(second >> 16));
  }
}

// After the rows of x have come.
template <Format F>
__device__ inline void finish_x(const Block& b) {
  if constexpr (F == Format::bf16) {
    weigh_x(b);
  } else {
    quantise_x<F>(b);
  }
}

// Scales (fp8_tensor) and biases of the rows of a stretch: [item][2][16] f32; complete after ptx::copies_wait() and a
// barrier.
template <Format F>
__device__ inline void fetch_terms(const Block& b, const Stretch& p) {
  constexpr std::int32_t kVectors = 2 * kGroupRows / 4;
  const DecodeSide& side = b.k.sides[p.side];
  if (F != Format::fp8_tensor && side.bias == nullptr) return;
#pragma unroll 1
  for (std::int32_t i = ptx::this_thread(); i < p.items * kVectors; i += kDecodeThreads) {
    const Item item = b.item(p, i / kVectors);
    const std::int32_t v = i % kVectors;
    const float* from = v < kVectors / 2 ? side.row_scale : side.bias;
    if (from == nullptr) continue;
    const std::int32_t row = item.row + v % (kVectors / 2) * 4;
    if (row >= side.records * kRecordRows) continue;
    ptx::copy_ahead(b.terms(p.side) + i * 4,
                    from + std::int64_t{b.t.expert[item.chunk]} * side.records * kRecordRows + row);
  }
}

__device__ __forceinline__ float counted(float v) {
  const float magnitude = fabsf(v);
  return magnitude <= 3.402823466e38f ? magnitude : 0.0f;
}

// Four numbers of the intermediate, which other blocks wrote; zeros behind I.
__device__ __forceinline__ float4 load_features(const float* from, bool inside) {
  return inside ? __ldcg(reinterpret_cast<const float4*>(from)) : make_float4(0, 0, 0, 0);
}

__device__ __forceinline__ float counted_most(const float4& v) {
  return fmaxf(fmaxf(counted(v.x), counted(v.y)), fmaxf(counted(v.z), counted(v.w)));
}

// Eight numbers of the intermediate, those of the even and of the odd codes of half a chunk of 16: 16 lanes a K block,
// in the order of the packed weights (launch.h, fp8_intermediate_column).
struct HalfChunk {
  static constexpr std::int32_t kLanes = 16;  // of a K block
  float4 even, odd;

  __device__ void load(const DecodeArgs& a, const float* block, std::int32_t kb, std::int32_t c, bool inside) {
    const std::int32_t column = c / 8 * 64 + c % 8 * 4, feature = kb * 128 + column;
    const std::int32_t inner = inside ? a.shape.intermediate : 0;
    even = load_features(block + column, feature < inner);
    odd = load_features(block + column + 32, feature + 32 < inner);
  }
  __device__ float block_amax() const {
    float amax = fmaxf(counted_most(even), counted_most(odd));
#pragma unroll
    for (int d = 1; d < kLanes; d *= 2) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, d));
    return amax;
  }
  __device__ uint4 codes(float inverse) const {
    return make_uint4(ptx::f16_of_codes(ptx::pack_e4m3(even.x * inverse, odd.x * inverse)),
                      ptx::f16_of_codes(ptx::pack_e4m3(even.y * inverse, odd.y * inverse)),
                      ptx::f16_of_codes(ptx::pack_e4m3(even.z * inverse, odd.z * inverse)),
                      ptx::f16_of_codes(ptx::pack_e4m3(even.w * inverse, odd.w * inverse)));
  }
};

// Rows of the intermediate of a stretch, quantised. A thread asks for several pieces before it uses the first. The two
// K blocks of a warp go on together.
template <Format F>
__device__ inline void fetch_h_fp8(const Block& b, std::int32_t first_place, std::int32_t rows) {
  constexpr std::int32_t kAhead = 4;
  const DecodeArgs& a = b.k.a;
  const std::int32_t k_blocks = b.k.sides[1].k_blocks, blocks = rows * k_blocks;  // K blocks of all rows
  const Divisor by = b.k.s.by_k_blocks2;
  const auto* from = static_cast<const float*>(a.h) + first_place * k_blocks * 128;
  const std::int32_t c = ptx::this_thread() % HalfChunk::kLanes;
  constexpr std::int32_t kStep = kDecodeThreads / HalfChunk::kLanes;
#pragma unroll 1
  for (std::int32_t first = ptx::this_thread() / HalfChunk::kLanes; first / 2 * 2 < blocks; first += kStep * kAhead) {
    HalfChunk piece[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const std::int32_t n = first + j * kStep;
      piece[j].load(a, from + n * 128, n - by.quotient(n) * k_blocks, c, n < blocks);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const std::int32_t n = first + j * kStep, row = by.quotient(n), kb = n - row * k_blocks;
      if (n / 2 * 2 >= blocks) break;
      float inverse = F == Format::fp8_tensor ? __fdiv_rn(1.0f, a.h_static_scale) : 0.0f;
      float scale = 0.0f;
      if constexpr (F == Format::fp8_block) {
        scale = __fdiv_rn(fmaxf(piece[j].block_amax(), kGroupAmaxFloor), kE4m3Largest);
        inverse = __fdiv_rn(1.0f, scale);
      }
      if (n >= blocks) continue;
      unsigned char* to = b.shared + row * b.k.s.h_stride;
      if (F == Format::fp8_block && c == 0) reinterpret_cast<float*>(to + k_blocks * 256)[kb] = scale;
      *reinterpret_cast<uint4*>(to + kb * 256 + c * 16) = piece[j].codes(inverse);
    }
  }
}

__device__ inline void fetch_h_bf16(const Block& b, std::int32_t first_place, std::int32_t rows) {
  const DecodeArgs& a = b.k.a;
  const std::int32_t vectors = b.k.sides[1].k_blocks * 8, total = rows * vectors;
#pragma unroll 2
  for (std::int32_t i = ptx::this_thread(); i < total; i += kDecodeThreads) {
    const std::int32_t row = b.k.s.by_k_blocks2.quotient(i / 8), v = i - row * vectors;
    const auto* from = static_cast<const uint4*>(a.h) + std::int64_t{first_place + row} * vectors + v;
    auto* to = reinterpret_cast<uint4*>(b.shared + row * b.k.s.h_stride) + v;
    if (v * 8 < a.shape.intermediate) {
      ptx::copy_ahead(to, from);
    } else {
      *to = make_uint4(0, 0, 0, 0);
    }
  }
}

struct Places {
  std::int32_t first, count;
};

// Those of the chunks of a stretch of FC2.
__device__ __forceinline__ Places places_of(const Block& b, std::int32_t round) {
  const std::int32_t begin = b.t.round_chunk[round], last = b.t.round_chunk[round + 1] - 1;
  if (last < begin) return {0, 0};
  return {b.t.first[begin], b.t.first[last] + b.t.rows[last] - b.t.first[begin]};
}

// The rows of the intermediate of a stretch of FC2; complete after ptx::copies_wait() and a barrier.
template <Format F>
__device__ inline void fetch_h(const Block& b, const Places& p) {
  const std::int32_t first_place = p.first, rows = p.count, thread = ptx::this_thread();
  if (thread < rows) b.t.row_at[first_place + thread] = thread * b.k.s.h_stride;
  if constexpr (F == Format::bf16) {
    fetch_h_bf16(b, first_place, rows);
  } else {
    fetch_h_fp8<F>(b, first_place, rows);
  }
}

}  // namespace sluice::cuda::sm90
