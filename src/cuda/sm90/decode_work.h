// How the kernel for a few tokens (decode.h) shares out its work and its shared memory. Pure functions of sizes, used
// by the host, the kernel and tests.
//
// A *chunk* is up to 8 routes of one expert. FC1's items are (chunk, 16 packed rows), FC2's (chunk, rows of the
// output); an item has a unit for each K block. A *stretch* is a list of items whose units the warps of a block share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/sm90/launch.h"

namespace sluice::cuda::sm90 {

inline constexpr std::int32_t kDecodeRoutes = 32;  // at most: a lane each
inline constexpr std::int32_t kDecodeWarps = 16;
inline constexpr std::int32_t kDecodeThreads = 32 * kDecodeWarps;
inline constexpr std::int32_t kGroupRows = 16;  // packed rows of an item of FC1
inline constexpr std::int32_t kFeatures = kGroupRows / 2;
inline constexpr std::int32_t kDecodeMostItems = 128;  // of a stretch
inline constexpr std::int32_t kChunkRows = 8;
inline constexpr std::int32_t kPartialFloats = kGroupRows * kChunkRows;  // one warp's sum of an item

struct Range {
  std::int32_t begin, end;
  __host__ __device__ constexpr std::int32_t count() const { return end - begin; }
};

// Division by a number that the host knows: a multiplication. Exact while dividend * divisor < 2^32.
struct Divisor {
  std::uint32_t value, factor;  // factor = 2^32 / value rounded up, 0 for value 1

  static constexpr Divisor of(std::int64_t value) {
    const auto v = static_cast<std::uint64_t>(std::max<std::int64_t>(value, 1));
    return {static_cast<std::uint32_t>(v),
            v == 1 ? 0 : static_cast<std::uint32_t>(((std::uint64_t{1} << 32) + v - 1) / v)};
  }
  __host__ __device__ constexpr std::int32_t quotient(std::int32_t n) const {
    if (factor == 0) return n;
    return static_cast<std::int32_t>(std::uint64_t{static_cast<std::uint32_t>(n)} * factor >> 32);
  }
};

// Part i of n things shared out over `parts` in contiguous parts that differ by one at most.
__host__ __device__ constexpr Range share_of(std::int32_t n, const Divisor& parts, std::int32_t i) {
  return {parts.quotient(n * i), parts.quotient(n * (i + 1))};
}

// The units of a warp: if there are enough, every one has some. Sums of (item i, warp w) are kept at i + w, which
// differs for any two.
__host__ __device__ constexpr Range units_of_warp(std::int32_t units, std::int32_t warp) {
  if (units >= kDecodeWarps) return {units * warp / kDecodeWarps, units * (warp + 1) / kDecodeWarps};
  return warp < units ? Range{warp, warp + 1} : Range{0, 0};
}

// How many stretches a share of FC1 is cut into.
__host__ __device__ constexpr std::int32_t rounds_of(std::int32_t items, std::int32_t most) {
  return items <= most ? 1 : (items + most - 1) / most;
}

// Weights come through a ring of units for each warp.
inline constexpr std::int32_t kUnitBytes = kGroupRows * kBlockBytes;
inline constexpr std::int32_t kMostUnits = 4, kLeastUnits = 2;  // bf16 has three, and is no faster with four
inline constexpr std::int32_t kFirstUnits = 3;                  // asked for before x is there, which comes behind them

// What the kernel's sizes are for a shape, a batch and a GPU; `bytes` = 0 where they do not fit.
struct DecodeSizes {
  std::int32_t shares;                           // blocks of the whole grid
  std::int32_t groups1;                          // items of FC1 a chunk
  std::int32_t rows2;                            // output rows of an item of FC2: 16 or 8
  std::int32_t groups2;                          // items of FC2 a chunk, over all blocks
  std::int32_t most2;                            // of them in one block
  std::int32_t cap1, cap2;                       // items of a stretch at most
  std::int32_t chunk_rows;                       // routes of a chunk at most
  std::int32_t h_rows;                           // rows of the intermediate that fit at once
  std::int32_t x_stride, h_stride;               // bytes of a row in shared memory
  std::int32_t units;                            // of the ring of a warp
  std::int32_t partials, terms1, terms2, slots;  // offsets behind the rows
  std::int32_t ring, barriers;
  std::int32_t bytes;
  Divisor by_shares, by_groups1, by_k_blocks1, by_k_blocks2, by_top_k;
  Divisor by_most2, by_less2;  // most2 and one less: items of FC2 a chunk in a block
};

inline constexpr std::int32_t kDecodeSharedBytes = 224 * 1024;
inline constexpr std::int32_t kTermBytes = 2 * kGroupRows * 4;  // scales, then biases of an item

// A row: 16-bit operands, then the fp32 scales of its K blocks. Rows start in different halves of the banks.
constexpr std::int32_t decode_row_bytes(Format format, std::int32_t k_blocks) {
  const std::int32_t operands = k_blocks * block_elements(format) * 2;
  return static_cast<std::int32_t>(round_up(operands + (format == Format::fp8_block ? 4 * k_blocks : 0), 128)) + 64;
}

// How much longer the longest part of n over `parts` is than the mean.
constexpr double unevenness(std::int32_t n, std::int32_t parts) {
  return static_cast<double>(ceil_div(n, parts)) * parts / n;
}

// Lays out shared memory with `units` in a ring and room for `h_rows` rows of the intermediate; false if too large.
constexpr bool lay_out(DecodeSizes& s, std::int32_t tokens, std::int32_t routes, std::int32_t h_rows,
                       std::int32_t units) {
  s.units = units;
  s.h_rows = h_rows;
  s.chunk_rows = std::min(kChunkRows, h_rows);
  s.partials = std::max(tokens * s.x_stride, h_rows * s.h_stride);
  s.terms1 = s.partials + (std::max(s.cap1, s.cap2) + kDecodeWarps) * kPartialFloats * 4;
  s.terms2 = s.terms1 + s.cap1 * kTermBytes;
  s.slots = s.terms2 + s.cap2 * kTermBytes;
  s.ring = static_cast<std::int32_t>(round_up(s.slots + 2 * routes * s.most2 * s.rows2, kBlockBytes));
  s.barriers = s.ring + kDecodeWarps * units * kUnitBytes;
  s.bytes = s.barriers + kDecodeWarps * units * 8;
  return s.bytes <= kDecodeSharedBytes;
}

constexpr DecodeSizes decode_sizes(const Shape& shape, std::int64_t tokens, std::int32_t top_k, std::int32_t blocks) {
  DecodeSizes s{};
  if (tokens < 1 || tokens * top_k > kDecodeRoutes || blocks < 1) return s;
  const Extents e = extents(shape);
  const auto t = static_cast<std::int32_t>(tokens), r = t * top_k;
  s.shares = blocks;
  s.groups1 = shape.intermediate / kFeatures;
  const std::int32_t wide = shape.hidden / kGroupRows;
  s.rows2 = unevenness(wide, blocks) > unevenness(2 * wide, blocks) + 0.3 ? kGroupRows / 2 : kGroupRows;
  s.groups2 = shape.hidden / s.rows2;
  s.most2 = static_cast<std::int32_t>(ceil_div(s.groups2, blocks));
  s.cap1 = static_cast<std::int32_t>(
      std::min<std::int64_t>(kDecodeMostItems, ceil_div(std::int64_t{r} * s.groups1, blocks)));
  s.cap2 = std::min(kDecodeMostItems, r * s.most2);
  s.x_stride = decode_row_bytes(shape.format, e.k_blocks1);
  s.h_stride = decode_row_bytes(shape.format, e.k_blocks2);
  const std::int64_t most_items = std::max(std::int64_t{r} * s.groups1, std::int64_t{s.groups2});
  if (s.most2 > s.cap2 || most_items * blocks * blocks >> 32 != 0) return s;  // Divisor would not be exact
  s.by_shares = Divisor::of(blocks);
  s.by_groups1 = Divisor::of(s.groups1);
  s.by_k_blocks1 = Divisor::of(e.k_blocks1);
  s.by_k_blocks2 = Divisor::of(e.k_blocks2);
  s.by_top_k = Divisor::of(top_k);
  s.by_most2 = Divisor::of(s.most2);
  s.by_less2 = Divisor::of(s.most2 - 1);
  const std::int32_t most_units = shape.format == Format::bf16 ? kFirstUnits : kMostUnits;
  for (std::int32_t units = most_units; units >= kFirstUnits; --units) {
    if (lay_out(s, t, r, r, units)) return s;
  }
  for (std::int32_t units = kFirstUnits; units >= kLeastUnits; --units) {
    for (std::int32_t h_rows = r - 1; h_rows >= 1; --h_rows) {
      if (lay_out(s, t, r, h_rows, units)) return s;
    }
  }
  s.bytes = 0;
  return s;
}

}  // namespace sluice::cuda::sm90
