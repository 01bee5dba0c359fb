// What the kernel for a few tokens (decode.h) receives and keeps in shared memory. Filled by decode.cu, read by the
// decode_*.cuh files. Plain data.
#pragma once

#include "cuda/sm90/decode.h"
#include "cuda/sm90/gemm_args.cuh"

namespace sluice::cuda::sm90 {

struct DecodeSide {
  const std::uint8_t* weights;
  std::int64_t expert_bytes;
  const float* block_scale;  // fp8_block
  const float* row_scale;    // fp8_tensor
  const float* bias;         // or nullptr
  std::int32_t k_blocks, records, tiles;
};

struct DecodeKernel {
  DecodeArgs a;
  DecodeSizes s;
  DecodeSide sides[2];
  GateCurve curve;
  bool is_curve;  // the activation is `curve`
  std::int32_t first_block;
};

// One set of DecodeState::flags.
struct DecodeFlags {
  std::uint32_t* done;  // [2] shares of FC1 whose intermediate was stored (it may be on its way still); blocks that run
  std::uint32_t* claims;  // [shares] 1 = a block computes it
};
inline constexpr std::int32_t kDecodeFlagGap = 32;  // ints: the counts have a line of their own
__host__ __device__ constexpr std::int32_t decode_flag_words(std::int32_t shares) {  // whole lines
  return (2 * kDecodeFlagGap - 1 + shares) / kDecodeFlagGap * kDecodeFlagGap;
}

// One of the sets of DecodeState.
struct DecodeSet {
  DecodeFlags flags;
  void* h;
};

// How the items of a chunk lie in the packed rows of a GEMM: `each` of them, one every `step` rows.
struct ItemRows {
  std::int32_t each, begin, end, step;
  Divisor by_each;
};

// Routes that have an expert here, in *places*: sorted by expert, then by route. A chunk has neighbouring places.
struct DecodeTables {
  std::int32_t places, chunks;
  std::int32_t rounds2;  // stretches of FC2, each of whole chunks
  std::int32_t round_chunk[kDecodeRoutes + 1];
  std::int32_t route_of[kDecodeRoutes];  // of a place
  std::int32_t place_of[kDecodeRoutes];  // of a route, -1 = skipped
  std::int32_t expert[kDecodeRoutes];    // of a chunk, as the next two
  std::int32_t first[kDecodeRoutes];     // place
  std::int32_t rows[kDecodeRoutes];
  float weight[kDecodeRoutes];  // of a route, as the next two
  std::int32_t chunk_of[kDecodeRoutes];
  std::int32_t column_of[kDecodeRoutes];  // in its chunk
  // Of a chunk: where the operands of its routes are in shared memory; columns without a route have those of the last.
  alignas(8) std::uint32_t column_at[kDecodeRoutes][kChunkRows];
  ItemRows sides[2];  // all of FC1; the rows of FC2 that are this block's
  std::uint8_t first_warp[kDecodeMostItems], last_warp[kDecodeMostItems];  // that have a part of an item
  std::int64_t began;                                                      // clock of the multiprocessor
  DecodeSet mine, other;  // of DecodeState: this launch's, and the one to clear, if there is one
  std::int32_t next_share;
  std::int32_t owned;  // whether this block is the one that computes its own share
};

// A part of one GEMM that all warps of a block work on together: items [first, first + items), counted through all
// chunks.
struct Stretch {
  std::int32_t side;  // 0 or 1
  std::int32_t first, items;
  std::int32_t k_blocks;
  __device__ std::int32_t units() const { return items * k_blocks; }
};

// Where a warp begins with a stretch, and how many units it has there.
struct Part {
  std::int32_t units, item, kb;
  __device__ Range range(const Stretch& p) const {
    const std::int32_t begin = item * p.k_blocks + kb;
    return {begin, begin + units};
  }
};

// What an item is.
struct Item {
  std::int32_t chunk;
  std::int32_t row;  // first packed row
};

// What all lanes have, so that the compiler knows it.
__device__ __forceinline__ std::int32_t uniform(std::int32_t v) { return __shfl_sync(0xffffffffu, v, 0); }
__device__ __forceinline__ std::int32_t this_warp() {
  return uniform(static_cast<std::int32_t>(ptx::this_thread() / 32));
}

struct Block {
  const DecodeKernel& k;
  DecodeTables& t;
  unsigned char* shared;  // rows, partial sums, terms, slots: DecodeSizes
  std::int32_t index;     // of the block, over all launches

  __device__ float* partials() const { return reinterpret_cast<float*>(shared + k.s.partials); }
  __device__ float* terms(std::int32_t side) const {
    return reinterpret_cast<float*>(shared + (side == 0 ? k.s.terms1 : k.s.terms2));
  }
  __device__ Item item(const Stretch& p, std::int32_t i) const {
    const ItemRows& rows = t.sides[p.side];
    const std::int32_t n = p.first + i, chunk = rows.by_each.quotient(n);
    return {chunk, rows.begin + (n - chunk * rows.each) * rows.step};
  }
  __device__ Part part(const Stretch& p) const {
    const Range mine = units_of_warp(p.units(), this_warp());
    const std::int32_t item = (p.side == 0 ? k.s.by_k_blocks1 : k.s.by_k_blocks2).quotient(mine.begin);
    return {mine.count(), item, mine.begin - item * p.k_blocks};
  }
  __device__ void to_next(Item& i, std::int32_t side) const {
    const ItemRows& rows = t.sides[side];
    i.row += rows.step;
    if (i.row < rows.end) return;
    i.row = rows.begin;
    ++i.chunk;
  }
};

// What a block computes: a share of FC1, in stretches, then its own part of FC2.
struct Share {
  Range items;          // of FC1
  std::int32_t rounds;  // stretches of FC1
};

__device__ __forceinline__ Share share_number(const Block& b, std::int32_t share) {
  const Range items = share_of(b.t.chunks * b.k.s.groups1, b.k.s.by_shares, share);
  return {items, rounds_of(items.count(), b.k.s.cap1)};
}

// Stretch i of a share of FC1; from `rounds` on, those of FC2; nothing before and behind.
__device__ __forceinline__ Stretch stretch_of(const Block& b, const Share& share, std::int32_t i) {
  const std::int32_t round = i - share.rounds;
  if (i < 0 || round >= b.t.rounds2) return {0, 0, 0, 1};
  if (round < 0) {
    const std::int32_t n = share.items.count();
    const Range part = share.rounds == 1 ? Range{0, n} : Range{n * i / share.rounds, n * (i + 1) / share.rounds};
    return {0, share.items.begin + part.begin, part.count(), b.k.sides[0].k_blocks};
  }
  const std::int32_t chunk = b.t.round_chunk[round], each = b.t.sides[1].each;
  return {1, chunk * each, (b.t.round_chunk[round + 1] - chunk) * each, b.k.sides[1].k_blocks};
}

}  // namespace sluice::cuda::sm90
