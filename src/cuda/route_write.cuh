// R for many routes (route.h): a block writes its share of the rows of GEMM1 input, a warp at a time four K blocks of a
// token. Bound by writing T k rows; 16 bytes a lane, 8 lanes a K block, so that a store of a warp fills four lines.
#pragma once

#include "cuda/ptx/copy.cuh"
#include "cuda/route_input.cuh"

namespace sluice::cuda {

inline constexpr int kPieceBlocks = 4;  // K blocks of a piece
inline constexpr int kChunkLanes = 8;   // of a K block

// A block's share of the batch, cut into pieces. By column: all its tokens for one group of K blocks, then for the
// next, so that all blocks write the same part of the image, where neighbouring tokens meet in memory.
struct PieceRange {
  std::uint32_t begin = 0, end = 0;
  std::uint32_t tokens = 0;  // that have pieces in it
  std::int64_t first_token = 0;
  std::uint32_t divisor = 1;  // tokens of the share by column, else pieces of a token
  bool by_column = false;

  struct Place {
    std::uint32_t token;  // from first_token on
    std::int32_t group;
  };
  __device__ Place at(std::uint32_t piece) const {
    const std::uint32_t q = piece / divisor, r = piece - q * divisor;
    return by_column ? Place{r, static_cast<std::int32_t>(q)} : Place{q, static_cast<std::int32_t>(r)};
  }
};

__host__ __device__ inline std::uint32_t pieces_of_token(std::int32_t k_blocks) {
  return static_cast<std::uint32_t>((k_blocks + kPieceBlocks - 1) / kPieceBlocks);
}

// Number of this block among those that have rows, the last of the grid.
__device__ inline std::uint32_t row_block(const RouteArgs& a) { return blockIdx.x - (a.plan.tables_apart ? 1 : 0); }

// Equal numbers of pieces for each block that has rows, in the order of the tokens.
__device__ inline PieceRange even_share(const RouteArgs& a) {
  const std::uint32_t block = row_block(a), blocks = gridDim.x - blockIdx.x + block;
  PieceRange p;
  p.divisor = pieces_of_token(a.k_blocks);
  const auto total = static_cast<std::uint32_t>(a.plan.tokens) * p.divisor;
  const std::uint32_t each = (total + blocks - 1) / blocks, begin = each * block;
  if (begin >= total) return p;
  p.first_token = begin / p.divisor;
  p.begin = begin % p.divisor;
  p.end = p.begin + min(each, total - begin);
  p.tokens = (p.end - 1) / p.divisor + 1;
  return p;
}

__device__ inline PieceRange whole_tokens(const RouteArgs& a) {
  const std::int64_t first = min(blockIdx.x * a.plan.block_tokens, a.plan.tokens);
  const auto tokens = static_cast<std::uint32_t>(min(a.plan.block_tokens, a.plan.tokens - first));
  return {0, tokens * pieces_of_token(a.k_blocks), tokens, first, tokens > 0 ? tokens : 1, true};
}

// Scales of the rows of a block's tokens; rows [.., k].
__device__ inline void write_dynamic_scales(const RouteArgs& a, const PieceRange& range, const std::int32_t* rows) {
  const int lane = threadIdx.x % 32;
  for (std::uint32_t t = threadIdx.x / 32; t < range.tokens; t += blockDim.x / 32) {
    const std::int32_t* row = rows + t * a.plan.top_k;
    const float scale = dynamic_scale(a, InputRow(a, range.first_token + t));
    for (std::int32_t s = lane; s < a.plan.top_k; s += 32) {
      if (row[s] >= 0) a.scales[row[s]] = scale;
    }
  }
  __syncthreads();
}

enum class Source : std::uint8_t {
  bf16,       // goes into the image as it is
  quantised,  // bf16, becomes e4m3
  codes,      // is e4m3 already
};

// 16 bytes of a row whose address does not allow more, or with fewer than that left of it: the first `left` elements,
// then zeros. Rare, and kept out of the way of the code that runs always.
template <class Element>
__device__ inline __noinline__ uint4 load_single(const Element* from, std::int64_t left) {
  alignas(16) Element e[16 / sizeof(Element)];
#pragma unroll
  for (int i = 0; i < static_cast<int>(16 / sizeof(Element)); ++i) e[i] = i < left ? from[i] : Element{};
  return *reinterpret_cast<const uint4*>(e);
}

__device__ inline float bf16_of(const uint4& v, int i) {
  return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(&v)[i]);
}

// Largest counted magnitude where there is an infinity or NaN. Rare.
__device__ inline __noinline__ float counted_amax(uint4 low, uint4 high) {
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    amax = fmaxf(amax, fmaxf(counted_magnitude(bf16_of(low, i)), counted_magnitude(bf16_of(high, i))));
  }
  return amax;
}

// Codes of 16 numbers where the reciprocal may not be taken. Rare.
__device__ inline __noinline__ uint4 codes_by_division(uint4 low, uint4 high, float scale) {
  const auto word = [scale](const uint4& v, int i) {
    return e4m3_by_division(bf16_of(v, i), bf16_of(v, i + 1), bf16_of(v, i + 2), bf16_of(v, i + 3), scale);
  };
  return make_uint4(word(low, 0), word(low, 4), word(high, 0), word(high, 4));
}

// Numbers times the routing weight, which is for layers of k = 1 only.
__device__ inline __noinline__ uint4 weighted(uint4 v, float weight) {
  auto* e = reinterpret_cast<__nv_bfloat16*>(&v);
#pragma unroll
  for (int i = 0; i < 8; ++i) e[i] = __float2bfloat16_rn(__fmul_rn(weight, bf16_of(v, i)));
  return v;
}

// What a lane reads for the 16 bytes of the image that it writes of a piece.
template <Source Kind>
struct Chunk {
  static constexpr int kVectors = Kind == Source::quantised ? 2 : 1;
  static constexpr int kColumns = Kind == Source::bf16 ? 8 : 16;
  uint4 v[kVectors];

  // Columns of a row, zeros behind its width. `vector`: the row can be read 16 bytes at a time.
  template <class Element>
  __device__ void load(const Element* row, std::int64_t width, std::int64_t column, bool vector) {
    constexpr int kEach = 16 / sizeof(Element);
    const bool wide = vector && column + kColumns <= width;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const Element* from = row + column + i * kEach;
      v[i] = wide ? *reinterpret_cast<const uint4*>(from) : load_single(from, width - column - i * kEach);
    }
  }

  __device__ void multiply(float weight) {
#pragma unroll
    for (uint4& part : v) part = weighted(part, weight);
  }

  // Largest magnitude of the lane's numbers; infinity or NaN where there is one.
  __device__ float largest() const {
    const auto* words = reinterpret_cast<const std::uint32_t*>(v);
    std::uint32_t most = 0;  // two bf16, whose magnitudes are ordered as integers
#pragma unroll
    for (int i = 0; i < 4 * kVectors; ++i) most = __vmaxu2(most, words[i] & 0x7FFF7FFFu);
    return __uint_as_float(max(most << 16, most & 0xFFFF0000u));
  }

  // Largest counted magnitude of the K block, to all of its lanes.
  __device__ float block_amax(float largest_of_lane) const {
    float amax = largest_of_lane;
    if (!(amax < FLT_MAX)) amax = counted_amax(v[0], v[kVectors - 1]);
#pragma unroll
    for (int d = 1; d < kChunkLanes; d *= 2) amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, d));
    return amax;
  }

  __device__ uint4 codes(float scale, float largest_of_lane) const {
    const float inverse = __fdiv_rn(1.0f, scale);
    const uint4 low = v[0], high = v[kVectors - 1];
    if (!reciprocal_is_exact(largest_of_lane, scale, inverse)) return codes_by_division(low, high, scale);
    const auto word = [&](const uint4& part, int i) {
      const float q[4] = {bf16_of(part, i), bf16_of(part, i + 1), bf16_of(part, i + 2), bf16_of(part, i + 3)};
      return e4m3_by_reciprocal(q, scale, inverse);
    };
    return make_uint4(word(low, 0), word(low, 4), word(high, 0), word(high, 4));
  }
};

// Scales of a piece at the padded row of each of its routes; lane s of the warp holds the row of slot s.
__device__ inline void write_scales(const RouteArgs& a, float scale, std::int32_t group, std::int32_t row) {
  if (a.form == InputForm::fp8_static && group == 0) {
    const float of_row = __shfl_sync(0xFFFFFFFFu, scale, 0);
    if (row >= 0) a.scales[row] = of_row;
  }
  if (a.form != InputForm::fp8_group) return;
#pragma unroll 1
  for (std::int32_t i = 0; i < kPieceBlocks; ++i) {
    const float of_block = __shfl_sync(0xFFFFFFFFu, scale, i * kChunkLanes);
    const std::int64_t kb = group * kPieceBlocks + i;
    if (row >= 0 && kb < a.k_blocks) a.scales[kb * a.padded_rows + row] = of_block;
  }
}

// A piece into the padded row of each of its routes, or once; lane s of the warp holds the row of slot s. k <= 32.
template <Source Kind>
__device__ inline void write_piece(const RouteArgs& a, const Chunk<Kind>& chunk, std::int64_t token, std::int32_t group,
                                   std::int32_t row) {
  const int lane = threadIdx.x % 32, c = lane % kChunkLanes;
  const std::int32_t kb = group * kPieceBlocks + lane / kChunkLanes;
  const unsigned some = __ballot_sync(0xFFFFFFFFu, row >= 0);
  if (some == 0) {
    write_no_output<Chunk<Kind>::kColumns>(a, token, (group * std::int64_t{32} + lane) * Chunk<Kind>::kColumns);
    return;
  }
  uint4 bytes = chunk.v[0];
  float scale = a.static_scale;
  if constexpr (Kind == Source::codes) {
    const std::int64_t column = a.form == InputForm::fp8_group ? kb : 0;
    if (kb < a.k_blocks) scale = a.code_scales[token * a.code_scale_row_stride + column];
  }
  if constexpr (Kind == Source::quantised) {
    const float largest = chunk.largest();
    if (a.form == InputForm::fp8_dynamic) scale = a.scales[__shfl_sync(0xFFFFFFFFu, row, __ffs(some) - 1)];
    if (a.form == InputForm::fp8_group) {
      scale = __fdiv_rn(fmaxf(chunk.block_amax(largest), kGroupAmaxFloor), kE4m3Largest);
    }
    bytes = chunk.codes(scale, largest);
  }
  if constexpr (Kind != Source::bf16) write_scales(a, scale, group, row);
  const bool inside = kb < a.k_blocks;
  if (a.rows != RowsAs::sorted) {
    std::uint8_t* to = a.image + (token * a.k_blocks + kb) * sm90::kBlockBytes + c * 16;
    if (inside && a.rows == RowsAs::by_token) *reinterpret_cast<uint4*>(to) = bytes;
    return;
  }
  std::uint8_t* image = a.image + kb * a.padded_rows * sm90::kBlockBytes;
#pragma unroll 1
  for (std::int32_t s = 0; s < a.plan.top_k; ++s) {
    const std::int32_t r = __shfl_sync(0xFFFFFFFFu, row, s);
    if (r < 0 || !inside) continue;
    *reinterpret_cast<uint4*>(image + std::int64_t{r} * sm90::kBlockBytes + ((c ^ (r & 7)) * 16)) = bytes;
  }
}

// What a warp loads before it writes the first of it.
template <Source Kind>
struct PieceBatch {
  static constexpr int kPieces = Kind == Source::quantised ? 2 : 3;
  Chunk<Kind> chunk[kPieces];
  PieceRange::Place at[kPieces];

  __device__ void load(const RouteArgs& a, const PieceRange& range, std::uint32_t base, bool vector) {
    const std::uint32_t warps = blockDim.x / 32;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const std::uint32_t piece = base + i * warps;
      if (piece >= range.end) break;
      at[i] = range.at(piece);
      if (Kind != Source::quantised && a.rows == RowsAs::in_place) continue;
      const std::int64_t token = range.first_token + at[i].token;
      const std::int64_t column = (at[i].group * std::int64_t{32} + lane) * Chunk<Kind>::kColumns;
      if constexpr (Kind == Source::codes) {
        chunk[i].load(a.codes + token * a.code_row_stride, a.width, column, vector);
      } else {
        const auto* row = static_cast<const __nv_bfloat16*>(a.hidden) + token * a.hidden_row_stride;
        chunk[i].load(row, a.width, column, vector);
      }
    }
  }

  // rows [.., k] of the range's tokens.
  __device__ void write(const RouteArgs& a, const PieceRange& range, std::uint32_t base, const std::int32_t* rows) {
    const std::uint32_t warps = blockDim.x / 32;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (base + i * warps >= range.end) break;
      const std::int64_t token = range.first_token + at[i].token;
      if (Kind != Source::codes && a.input_weights != nullptr) chunk[i].multiply(a.input_weights[token]);
      const std::int32_t row = lane < a.plan.top_k ? rows[at[i].token * a.plan.top_k + lane] : -1;
      write_piece<Kind>(a, chunk[i], token, at[i].group, row);
    }
  }
};

// Zeros in the output rows of tokens that are skipped, where nothing else is written; k = 1.
__device__ inline void write_no_outputs(const RouteArgs& a, const PieceRange& range, const std::int32_t* rows) {
  const int lane = threadIdx.x % 32;
  for (std::uint32_t t = threadIdx.x / 32; t < range.tokens; t += blockDim.x / 32) {
    if (rows[t] >= 0) continue;
    for (std::int64_t column = lane * 8; column < a.width; column += 256) {
      write_no_output<8>(a, range.first_token + t, column);
    }
  }
}

// Writes the pieces of `all` into `rows` [.., k], which sort() of the whole block makes; it is called when the first
// pieces are on their way.
template <Source Kind, class Sort>
__device__ inline void write_input(const RouteArgs& a, const PieceRange& all, const std::int32_t* rows, Sort sort) {
  PieceRange range = all;
  const bool nothing = Kind == Source::bf16 && a.rows == RowsAs::in_place;
  if (nothing) range.end = range.begin;
  constexpr bool codes = Kind == Source::codes;
  const std::int64_t row_bytes = codes ? a.code_row_stride : 2 * a.hidden_row_stride;
  const void* input = codes ? a.codes : a.hidden;
  const bool vector = row_bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(input) % 16 == 0;
  const std::uint32_t step = blockDim.x / 32 * PieceBatch<Kind>::kPieces;
  bool sorted = false;
  for (std::uint32_t base = range.begin + threadIdx.x / 32; !sorted || base < range.end; base += step) {
    PieceBatch<Kind> batch;
    batch.load(a, range, base, vector);
    if (!sorted) sort();
    sorted = true;
    batch.write(a, range, base, rows);
  }
  if (nothing && a.output != nullptr) write_no_outputs(a, all, rows);
}

}  // namespace sluice::cuda
