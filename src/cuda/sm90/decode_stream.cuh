// How a warp of the kernel for a few tokens reads weights and multiplies: bulk copies of units into a ring of its own
// in shared memory, and mma.sync with the 16 weight rows of a unit as A and the routes of a chunk as the columns of B.
//
// A unit is 16 packed rows of one K block, 2 KB in one piece. The order of K within a product is free, so lane (g, t) =
// (lane / 4, lane % 4) takes chunks t and t + 4 of two rows as they lie, and the same elements of route g. Which rows a
// lane takes is free, too: row_of_lane() keeps the reads of eight lanes in different banks. All functions are called by
// whole warps.
#pragma once

#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/sm90/decode_args.cuh"

namespace sluice::cuda::sm90 {

// The first of the two weight rows of a lane; the other is eight rows on.
__device__ __forceinline__ std::uint32_t row_of_lane() {
  const std::uint32_t g = ptx::this_thread() % 32 / 4;
  return g / 2 + g % 2 * 4;
}

// A lane's part of a unit: chunks t and t + 4 of two rows.
struct Unit {
  uint4 row0[2], row8[2];
};

// The units of a warp on their way or waiting to be used, first in, first out.
template <Format F>
struct Ring {
  static constexpr std::uint32_t kSlot = slot_bytes(F);
  std::uint32_t fill, fill_barrier, use, use_barrier;  // shared addresses
  std::uint32_t end, bytes, barrier_bytes;             // of the ring
  std::uint32_t low, high;                             // of the lane's chunks in a unit
  std::uint32_t parity = 0;
  std::int32_t room;  // units that may be put
  bool leads;

  __device__ explicit Ring(const Block& b) : room(b.k.s.units) {
    const std::uint32_t lane = ptx::this_thread() % 32, warp = ptx::this_thread() / 32;
    const std::uint32_t base = ptx::shared_address(b.shared);
    barrier_bytes = room * 8;
    bytes = room * kSlot;
    fill = use = base + b.k.s.ring + warp * bytes;
    fill_barrier = use_barrier = base + b.k.s.barriers + warp * barrier_bytes;
    end = fill + bytes;
    const std::uint32_t row = row_of_lane();
    low = row * kBlockBytes + (((lane % 4) ^ row) * 16);
    high = low ^ 64;
    leads = lane == 0;
    if (lane < static_cast<std::uint32_t>(room)) ptx::mbarrier_init(fill_barrier + 8 * lane, 1);
    ptx::fence_mbarrier_init();
    __syncwarp();
  }

  // Only where there is room.
  __device__ void put(const std::uint8_t* unit, std::uint32_t unit_bytes, const float* scales) {
    if (leads) {
      ptx::mbarrier_arrive_expect(fill_barrier, unit_bytes + (F == Format::fp8_block ? kUnitScaleBytes : 0));
      ptx::bulk_load(fill, unit, unit_bytes, fill_barrier);
      if constexpr (F == Format::fp8_block) ptx::bulk_load(fill + kUnitBytes, scales, kUnitScaleBytes, fill_barrier);
    }
    --room;
    step(fill, fill_barrier);
  }

  __device__ void step(std::uint32_t& at, std::uint32_t& barrier) const {
    at += kSlot;
    barrier += 8;
    if (at != end) return;
    at -= bytes;
    barrier -= barrier_bytes;
  }

  // The first unit, once it is there.
  __device__ void wait() const { ptx::mbarrier_wait(use_barrier, parity); }
  __device__ Unit read() const {
    Unit u;
    u.row0[0] = ptx::shared_vector(use + low);
    u.row0[1] = ptx::shared_vector(use + high);
    u.row8[0] = ptx::shared_vector(use + low + kChunkRows * kBlockBytes);
    u.row8[1] = ptx::shared_vector(use + high + kChunkRows * kBlockBytes);
    return u;
  }

  // Gives its place free, when all lanes have used what they read.
  __device__ void drop() {
    __syncwarp();
    step(use, use_barrier);
    if (use + bytes == end) parity ^= 1;
    ++room;
  }

  __device__ void clear(std::int32_t size) {
#pragma unroll 1
    while (room < size) {
      wait();
      drop();
    }
  }
};

// Where a warp loads next.
template <Format F>
struct Cursor {
  std::int32_t side = 0, k_blocks = 0, unit_bytes = 0;
  Item item = {};
  std::int32_t kb = 0;
  std::int32_t left = 0;  // units
  const std::uint8_t* at = nullptr;
  const float* scale = nullptr;
  std::int32_t step = 0;  // bytes from a K block to the next

  Part begun = {};  // of the stretch

  __device__ void begin(const Block& b, const Stretch& p) {
    begun = b.part(p);
    left = begun.units;
    if (left == 0) return;
    side = p.side;
    k_blocks = p.k_blocks;
    unit_bytes = (side == 0 ? kGroupRows : b.k.s.rows2) * kBlockBytes;
    item = b.item(p, begun.item);
    kb = begun.kb;
    seek(b);
  }

  __device__ void seek(const Block& b) {
    const DecodeSide& s = b.k.sides[side];
    const std::int32_t expert = b.t.expert[item.chunk];
    const std::uint32_t row = item.row, record = row / kRecordRows, tile = record / kTileRecords;
    const std::int32_t in_tile = min(kTileRecords, s.records - static_cast<std::int32_t>(tile) * kTileRecords);
    step = in_tile * kRecordBytes;
    at = s.weights + expert * s.expert_bytes + std::int64_t{s.k_blocks} * (tile * kTileRecords * kRecordBytes) +
         std::int64_t{kb} * step + record % kTileRecords * kRecordBytes + row % kRecordRows * kBlockBytes;
    if constexpr (F == Format::fp8_block) {
      scale = s.block_scale + ((std::int64_t{expert} * s.tiles + tile) * s.k_blocks + kb) * 4;
    }
  }

  // As many units as there are and the ring has room for.
  __device__ void fill(const Block& b, Ring<F>& ring) {
#pragma unroll 1
    while (left > 0 && ring.room > 0) {
      ring.put(at, unit_bytes, scale);
      --left;
      at += step;
      if constexpr (F == Format::fp8_block) scale += 4;
      if (++kb < k_blocks) continue;
      kb = 0;
      b.to_next(item, side);
      if (left > 0) seek(b);
    }
  }
};

// Sums of the item that a warp is at.
template <Format F>
struct Sums {
  float acc[4] = {};
  Item item;
  std::int32_t kb;
  std::uint32_t operand;         // shared address of what this lane multiplies next
  std::uint32_t scale0, scale1;  // fp8_block: of its two columns
  std::uint32_t scale_at = 0;    // fp8_block: of the scales of a unit, the first that counts

  __device__ void seek(const Block& b, const Stretch& p) {
    const std::int32_t g = ptx::this_thread() % 32 / 4, t = ptx::this_thread() % 4;
    const std::int32_t first = b.t.first[item.chunk], last = b.t.rows[item.chunk] - 1;
    const std::uint32_t rows = ptx::shared_address(b.shared);
    operand = rows + b.t.row_at[first + min(g, last)] + t * (F == Format::bf16 ? 16 : 32);
    if constexpr (F == Format::fp8_block) {
      scale0 = rows + b.t.row_at[first + min(2 * t, last)] + p.k_blocks * 256;
      scale1 = rows + b.t.row_at[first + min(2 * t + 1, last)] + p.k_blocks * 256;
      if (p.side == 1) scale_at = item.row / kRecordRows % kTileRecords / 2 * 8;
    }
    operand += kb * (F == Format::bf16 ? 128 : 256);
    scale0 += kb * 4;
    scale1 += kb * 4;
  }

  __device__ void add_bf16(const Unit& u) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint4 x = ptx::shared_vector(operand + 64 * h);
      ptx::mma_bf16(acc, u.row0[h].x, u.row8[h].x, u.row0[h].y, u.row8[h].y, x.x, x.y);
      ptx::mma_bf16(acc, u.row0[h].z, u.row8[h].z, u.row0[h].w, u.row8[h].w, x.z, x.w);
    }
    operand += kBlockBytes;
  }

  __device__ static void add_word(float (&chain)[4], std::uint32_t w0, std::uint32_t w8, std::uint32_t x0,
                                  std::uint32_t x1) {
    ptx::mma_f16(chain, ptx::f16_of_codes(w0), ptx::f16_of_codes(w8), ptx::f16_of_codes(w0 >> 16),
                 ptx::f16_of_codes(w8 >> 16), x0, x1);
  }

  // The products of a K block are two chains, so that one does not wait for itself; their sum goes into the fp32 sum.
  __device__ void add_fp8(const Unit& u, std::uint32_t unit) {
    float chain[4] = {}, other[4] = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint4 x = ptx::shared_vector(operand + 128 * h), y = ptx::shared_vector(operand + 128 * h + 16);
      add_word(chain, u.row0[h].x, u.row8[h].x, x.x, x.y);
      add_word(other, u.row0[h].y, u.row8[h].y, x.z, x.w);
      add_word(chain, u.row0[h].z, u.row8[h].z, y.x, y.y);
      add_word(other, u.row0[h].w, u.row8[h].w, y.z, y.w);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) chain[i] += other[i];
    operand += 2 * kBlockBytes;
    if constexpr (F == Format::fp8_block) {
      const float x0 = ptx::shared_float(scale0), x1 = ptx::shared_float(scale1);
      const float w0 = ptx::shared_float(unit + kUnitBytes + scale_at),
                  w8 = ptx::shared_float(unit + kUnitBytes + scale_at + 4);
      acc[0] = fmaf(chain[0], x0 * w0, acc[0]);
      acc[1] = fmaf(chain[1], x1 * w0, acc[1]);
      acc[2] = fmaf(chain[2], x0 * w8, acc[2]);
      acc[3] = fmaf(chain[3], x1 * w8, acc[3]);
      scale0 += 4;
      scale1 += 4;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[i] += chain[i];
    }
  }

  __device__ void add(const Ring<F>& ring) {
    if constexpr (F == Format::bf16) {
      add_bf16(ring.read());
    } else {
      add_fp8(ring.read(), ring.use);
    }
  }

  // Leaves the sum of this warp for item i: [16 rows][8 columns].
  __device__ void leave(const Block& b, std::int32_t i, bool from_start, bool to_end) {
    const std::int32_t warp = ptx::this_thread() / 32;
    float* to = b.partials() + (i + warp) * kPartialFloats + row_of_lane() * kChunkRows + ptx::this_thread() % 4 * 2;
    *reinterpret_cast<float2*>(to) = make_float2(acc[0], acc[1]);
    *reinterpret_cast<float2*>(to + 8 * kChunkRows) = make_float2(acc[2], acc[3]);
#pragma unroll
    for (float& a : acc) a = 0.0f;
    if (ptx::this_thread() % 32 != 0) return;
    if (from_start) b.t.first_warp[i] = static_cast<std::uint8_t>(warp);
    if (to_end) b.t.last_warp[i] = static_cast<std::uint8_t>(warp);
  }
};

// The units of a stretch that are this warp's, some of which are in the ring already. As soon as all are, those of the
// next stretch follow, which `next` gives.
template <Format F, class Next>
__device__ __forceinline__ void stream_stretch(const Block& b, const Stretch& p, Next next, Cursor<F>& cursor,
                                               Ring<F>& ring) {
  Sums<F> sums;
  std::int32_t left = cursor.begun.units, i = cursor.begun.item;
  bool from_start = cursor.begun.kb == 0, begun = false;
  if (left > 0) {
    sums.item = b.item(p, i);
    sums.kb = cursor.begun.kb;
    sums.seek(b, p);
  }
#pragma unroll 1
  for (;;) {
    if (!begun && cursor.left == 0) {
      cursor.begin(b, next());
      begun = true;
    }
    cursor.fill(b, ring);
    if (left == 0) break;
    ring.wait();
    sums.add(ring);
    ring.drop();
    --left;
    const bool item_ends = ++sums.kb == p.k_blocks;
    if (!item_ends && left > 0) continue;
    sums.leave(b, i, from_start, item_ends);
    if (left == 0) continue;
    sums.kb = 0;
    from_start = true;
    ++i;
    b.to_next(sums.item, p.side);
    sums.seek(b, p);
  }
}

// The sum over K of element `at` of item i's partial sums, in ascending order of K.
__device__ __forceinline__ float whole_sum(const Block& b, std::int32_t i, std::int32_t at) {
  const std::int32_t first = b.t.first_warp[i], last = b.t.last_warp[i];
  const float* from = b.partials() + i * kPartialFloats + at;
  float sum = from[first * kPartialFloats];
#pragma unroll 1
  for (std::int32_t w = first + 1; w <= last; ++w) sum += from[w * kPartialFloats];
  return sum;
}

}  // namespace sluice::cuda::sm90
