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
  const std::int32_t lane = ptx::this_thread() % 32;
  const std::int32_t expert = route.expert(k.a, k.s.by_top_k);
  const bool here = expert >= 0;
  const unsigned places_mask = __ballot_sync(0xffffffffu, here), before = (1u << lane) - 1u;
  // Lanes whose expert is the same, and those whose expert is smaller: from the highest bit down, four at a time.
  unsigned same = places_mask, smaller = 0;
#pragma unroll 1
  for (std::int32_t high = (31 - __clz(k.a.shape.experts)) | 3; high > 0; high -= 4) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool set = (expert >> (high - j) & 1) != 0;
      const unsigned ones = __ballot_sync(0xffffffffu, set);
      if (set) smaller |= same & ~ones;
      same &= set ? ones : ~ones;
    }
  }
  const std::int32_t rank = __popc(same & before);
  const unsigned first = smaller | (same & before);
  const bool starts = here && rank % k.s.chunk_rows == 0;
  const unsigned starts_mask = __ballot_sync(0xffffffffu, starts);
  const std::int32_t place = __popc(first), chunk = __popc(starts_mask & first);
  if (starts) {
    t.expert[chunk] = expert;
    t.first[chunk] = place;
    t.rows[chunk] = min(k.s.chunk_rows, __popc(same) - rank);
  }
  if (here) t.route_of[place] = lane;
  t.chunk_of[lane] = __popc(starts_mask & (first | 1u << lane)) - 1;
  t.column_of[lane] = rank % k.s.chunk_rows;
  t.place_of[lane] = here ? place : -1;
  t.weight[lane] = route.weight;
  const std::int32_t places = __popc(places_mask), chunks = __popc(starts_mask);
  __syncwarp();
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

// Where the columns of all chunks are: `offset` of a place gives it.
template <class Offset>
__device__ __forceinline__ void set_columns(const Block& b, Offset offset) {
  const std::int32_t n = ptx::this_thread(), chunk = n / kChunkRows;
  static_assert(kDecodeRoutes * kChunkRows <= kDecodeThreads);
  if (chunk >= b.t.chunks) return;
  const std::int32_t place = b.t.first[chunk] + min(n % kChunkRows, b.t.rows[chunk] - 1);
  b.t.column_at[chunk][n % kChunkRows] = ptx::shared_address(b.shared) + offset(place);
}

// All rows of x as they are, zeros behind H; complete after a barrier.
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

__device__ __forceinline__ float low_number(std::uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_number(std::uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// Where weights go into the input: rows times their weight, in place.
__device__ inline void weigh_x(const Block& b) {
  const DecodeArgs& a = b.k.a;
  const std::int32_t pairs = b.k.sides[0].k_blocks * block_elements(a.shape.format) / 2;
#pragma unroll 1
  for (std::int32_t row = 0; row < a.tokens; ++row) {
    const float weight = a.input_weights[row];
    auto* at = reinterpret_cast<std::uint32_t*>(b.shared + row * b.k.s.x_stride);
#pragma unroll 1
    for (std::int32_t i = ptx::this_thread(); i < pairs; i += kDecodeThreads) {
      at[i] = ptx::pack_bf16(__fmul_rn(weight, low_number(at[i])), __fmul_rn(weight, high_number(at[i])));
    }
  }
}

// Magnitudes of eight bf16 numbers: the largest as amax counts it (counted_magnitude), and whether one is no number.
struct Magnitudes {
  float most;
  bool number;

  __device__ explicit Magnitudes(const uint4& x) {
    const __nv_bfloat162 a = __habs2(pair(x.x)), b = __habs2(pair(x.y)), c = __habs2(pair(x.z)), d = __habs2(pair(x.w));
    const __nv_bfloat162 numbers = __hmax2(__hmax2(a, b), __hmax2(c, d));
    const __nv_bfloat162 all = __hmax2_nan(__hmax2_nan(a, b), __hmax2_nan(c, d));
    most = fminf(fmaxf(fmaxf(__low2float(numbers), __high2float(numbers)), 0.0f), FLT_MAX);
    number = !__isnan(__low2float(all)) && !__isnan(__high2float(all));
  }
  __device__ static __nv_bfloat162 pair(std::uint32_t packed) {
    return reinterpret_cast<const __nv_bfloat162&>(packed);
  }
};

__device__ __forceinline__ uint4 f16_of_eight(std::uint32_t low, std::uint32_t high) {
  return make_uint4(ptx::f16_of_codes(low), ptx::f16_of_high_codes(low), ptx::f16_of_codes(high),
                    ptx::f16_of_high_codes(high));
}

// The f16 of the codes of eight bf16 numbers.
__device__ __forceinline__ uint4 codes_of_eight(const uint4& x, float scale, bool numbers, float amax) {
  const float inverse = __fdiv_rn(1.0f, scale);
  const float low[4] = {low_number(x.x), high_number(x.x), low_number(x.y), high_number(x.y)};
  const float high[4] = {low_number(x.z), high_number(x.z), low_number(x.w), high_number(x.w)};
  if (numbers && reciprocal_is_exact(amax, scale, inverse)) {
    return f16_of_eight(e4m3_by_reciprocal(low, scale, inverse), e4m3_by_reciprocal(high, scale, inverse));
  }
  return f16_of_eight(e4m3_by_division(low[0], low[1], low[2], low[3], scale),
                      e4m3_by_division(high[0], high[1], high[2], high[3], scale));
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
    const Magnitudes magnitudes(packed);
    float amax = magnitudes.most, scale = a.x_static_scale;
    if constexpr (F == Format::fp8_block) {
#pragma unroll
      for (int d = 1; d < kLanes; d *= 2) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, d));
      scale = __fdiv_rn(fmaxf(amax, kGroupAmaxFloor), kE4m3Largest);
    }
    const uint4 codes = codes_of_eight(packed, scale, magnitudes.number, amax);
    __syncwarp();  // lanes behind the end have read the last K block, too
    if (n >= blocks) continue;
    if (F == Format::fp8_block && c == 0) reinterpret_cast<float*>(x + k_blocks * 256)[kb] = scale;
    *at = codes;
  }
}

// After the rows of x have come.
template <Format F>
__device__ inline void finish_x(const Block& b) {
  if (b.k.a.input_weights != nullptr) {
    weigh_x(b);
    __syncthreads();
  }
  if constexpr (F != Format::bf16) quantise_x<F>(b);
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

// Elements of the intermediate come without a flag: before, all bits of each are set (DecodeState), which no element
// has that is written (store_feature). So nobody waits for stores to be made before he says that they were.
__device__ __forceinline__ float4 load_features(const float* from, bool inside) {
  if (!inside) return make_float4(0, 0, 0, 0);
  const uint4 v = ptx::load_relaxed_vector(from);
  return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
}

__device__ __forceinline__ bool written(const float4& v) {
  return max(max(__float_as_uint(v.x), __float_as_uint(v.y)), max(__float_as_uint(v.z), __float_as_uint(v.w))) != ~0u;
}

// The largest of four magnitudes; NaN does not count, and with `Finite` neither does infinity.
template <bool Finite>
__device__ __forceinline__ float largest(const float4& v) {
  const float m[4] = {fabsf(v.x), fabsf(v.y), fabsf(v.z), fabsf(v.w)};
  float most = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) most = fmaxf(most, !Finite || m[i] <= FLT_MAX ? m[i] : 0.0f);
  return most;
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
  template <bool Finite>
  __device__ float block_most() const {
    float most = fmaxf(largest<Finite>(even), largest<Finite>(odd));
#pragma unroll
    for (int d = 1; d < kLanes; d *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
    return most;
  }
  // Of the finite numbers. By all lanes of a warp.
  __device__ float block_amax() const {
    const float most = block_most<false>();
    return __any_sync(0xffffffffu, most > FLT_MAX) ? block_most<true>() : most;
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
__device__ inline void fetch_h_block(const Block& b, std::int32_t first_place, std::int32_t rows) {
  constexpr std::int32_t kAhead = 4;
  const DecodeArgs& a = b.k.a;
  const std::int32_t k_blocks = b.k.sides[1].k_blocks, blocks = rows * k_blocks;  // K blocks of all rows
  const Divisor by = b.k.s.by_k_blocks2;
  const auto* from = static_cast<const float*>(b.t.mine.h) + first_place * k_blocks * 128;
  const std::int32_t c = ptx::this_thread() % HalfChunk::kLanes;
  constexpr std::int32_t kStep = kDecodeThreads / HalfChunk::kLanes;
#pragma unroll 1
  for (std::int32_t first = ptx::this_thread() / HalfChunk::kLanes; first / 2 * 2 < blocks; first += kStep * kAhead) {
    HalfChunk piece[kAhead];
    bool all;
    do {
      all = true;
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const std::int32_t n = first + j * kStep;
        piece[j].load(a, from + n * 128, n - by.quotient(n) * k_blocks, c, n < blocks);
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) all = all && written(piece[j].even) && written(piece[j].odd);
    } while (!all);
    __syncwarp();
    // One copy of the code, through which the pieces pass: to move them takes less than to fetch four.
#pragma unroll 1
    for (std::int32_t n = first; n < first + kStep * kAhead && n / 2 * 2 < blocks; n += kStep) {
      const std::int32_t row = by.quotient(n), kb = n - row * k_blocks;
      const float scale = __fdiv_rn(fmaxf(piece[0].block_amax(), kGroupAmaxFloor), kE4m3Largest);
      const uint4 codes = piece[0].codes(__fdiv_rn(1.0f, scale));
#pragma unroll
      for (int j = 1; j < kAhead; ++j) piece[j - 1] = piece[j];
      if (n >= blocks) continue;
      unsigned char* to = b.shared + row * b.k.s.h_stride;
      if (c == 0) reinterpret_cast<float*>(to + k_blocks * 256)[kb] = scale;
      *reinterpret_cast<uint4*>(to + kb * 256 + c * 16) = codes;
    }
  }
}

// 16 bytes of a row of the intermediate: bf16 numbers, or codes in the order of the packed weights.
template <Format F>
struct Vector {
  uint4 v = make_uint4(0, 0, 0, 0);
  std::uint32_t here = 0;  // bits of a word that hold features in front of I

  __device__ void seek(const DecodeArgs& a, std::int32_t c) {
    if constexpr (F == Format::bf16) {
      here = c * 8 < a.shape.intermediate ? ~0u : 0u;
    } else {
      const std::int32_t feature = c / 4 * 64 + c % 4 * 8;
      here = (feature < a.shape.intermediate ? 0x00ff00ffu : 0u) |
             (feature + 32 < a.shape.intermediate ? 0xff00ff00u : 0u);
    }
  }
  __device__ void load(const uint4* from) {
    if (here != 0) v = ptx::load_relaxed_vector(from);
  }
  __device__ static std::uint32_t unwritten(std::uint32_t word) {
    return F == Format::bf16 ? __vcmpeq2(word, ~0u) : __vcmpeq4(word, ~0u);
  }
  __device__ bool written() const {
    return ((unwritten(v.x) | unwritten(v.y) | unwritten(v.z) | unwritten(v.w)) & here) == 0;
  }
  __device__ void store(unsigned char* row, std::int32_t c) const {
    const uint4 w = make_uint4(v.x & here, v.y & here, v.z & here, v.w & here);
    auto* to = reinterpret_cast<uint4*>(row);
    if constexpr (F == Format::bf16) {
      to[c] = w;
    } else {
      to[2 * c] = f16_of_eight(w.x, w.y);
      to[2 * c + 1] = f16_of_eight(w.z, w.w);
    }
  }
};

// Rows of the intermediate of a stretch, as they are; zeros behind I.
template <Format F>
__device__ inline void fetch_h_vectors(const Block& b, std::int32_t first_place, std::int32_t rows) {
  constexpr std::int32_t kAhead = 3;
  const std::int32_t vectors = b.k.sides[1].k_blocks * 8, total = rows * vectors;
  const auto* from = static_cast<const uint4*>(b.t.mine.h) + std::int64_t{first_place} * vectors;
#pragma unroll 1
  for (std::int32_t first = ptx::this_thread(); first < total; first += kAhead * kDecodeThreads) {
    Vector<F> piece[kAhead];
    std::int32_t row[kAhead], c[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const std::int32_t i = first + j * kDecodeThreads;
      row[j] = b.k.s.by_k_blocks2.quotient(i / 8);
      c[j] = i - row[j] * vectors;
      if (i < total) piece[j].seek(b.k.a, c[j]);
    }
    bool all;
    do {
      all = true;
#pragma unroll
      for (int j = 0; j < kAhead; ++j) piece[j].load(from + first + j * kDecodeThreads);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) all = all && piece[j].written();
    } while (!all);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (first + j * kDecodeThreads < total) piece[j].store(b.shared + row[j] * b.k.s.h_stride, c[j]);
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
  const std::int32_t first_place = p.first, rows = p.count;
  set_columns(b, [&](std::int32_t place) { return (place - first_place) * b.k.s.h_stride; });  // of others: not used
  if constexpr (F == Format::fp8_block) {
    fetch_h_block(b, first_place, rows);
  } else {
    fetch_h_vectors<F>(b, first_place, rows);
  }
}

}  // namespace sluice::cuda::sm90
