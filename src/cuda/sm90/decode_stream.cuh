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
struct Ring {
  std::uint32_t use, use_barrier;  // shared addresses of the first unit
  std::uint32_t begin, end, barriers;
  std::uint32_t parity = 0;
  std::int32_t units, room;  // places, and those that are free
  std::uint32_t low, high;   // of the lane's chunks in a unit
  bool leads;

  __device__ explicit Ring(const Block& b) : units(b.k.s.units), room(b.k.s.units) {
    const std::uint32_t lane = ptx::this_thread() % 32, warp = this_warp();
    const std::uint32_t base = ptx::shared_address(b.shared), row = row_of_lane();
    use = begin = base + b.k.s.ring + warp * units * kUnitBytes;
    end = begin + units * kUnitBytes;
    use_barrier = barriers = base + b.k.s.barriers + warp * units * 8;
    low = row * kBlockBytes + (((lane % 4) ^ row) * 16);
    high = low ^ 64;
    leads = lane == 0;
    if (lane < static_cast<std::uint32_t>(units)) ptx::mbarrier_init(barriers + 8 * lane, 1);
    ptx::fence_mbarrier_init();
    __syncwarp();
  }

  // Into a place that is free.
  __device__ void put(std::uint32_t place, std::uint32_t barrier, const std::uint8_t* unit,
                      std::uint32_t unit_bytes) const {
    if (leads) {
      ptx::mbarrier_arrive_expect(barrier, unit_bytes);
      ptx::bulk_load(place, unit, unit_bytes, barrier);
    }
  }
  // Behind all others; only where there is room.
  __device__ void put_last(const std::uint8_t* unit, std::uint32_t unit_bytes) {
    std::uint32_t place = use + (units - room) * kUnitBytes;
    if (place >= end) place -= end - begin;
    put(place, barriers + (place - begin) / (kUnitBytes / 8), unit, unit_bytes);
    --room;
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
  // To the next unit; all lanes have used what they read of this one.
  __device__ void step() {
    use += kUnitBytes;
    use_barrier += 8;
    if (use != end) return;
    use = begin;
    use_barrier = barriers;
    parity ^= 1;
  }

  __device__ void clear() {
#pragma unroll 1
    while (room < units) {
      wait();
      __syncwarp();
      step();
      ++room;
    }
  }
};

// fp8_block: the weight scales of a warp's units, a unit a lane, 32 units at a time: those of rows 0-7 and of rows
// 8-15. Asked for long before they are used: those of a stretch when its first weights are, the next 32 when 32 begin.
template <Format F>
struct WeightScales {
  float2 now, later, first;  // `first` = of the next stretch

  __device__ static float2 load(const Block& b, const Stretch& p, std::int32_t unit) {
    const DecodeSide& s = b.k.sides[p.side];
    const std::int32_t item = (p.side == 0 ? b.k.s.by_k_blocks1 : b.k.s.by_k_blocks2).quotient(unit);
    const Item i = b.item(p, item);
    const std::int32_t record = i.row / kRecordRows, half = p.side == 0 ? 0 : record % kTileRecords / 2 * 2;
    const std::int32_t tile = b.t.expert[i.chunk] * s.tiles + record / kTileRecords;
    const std::int64_t at = (std::int64_t{tile} * p.k_blocks + unit - item * p.k_blocks) * 4 + half;
    return __ldg(reinterpret_cast<const float2*>(s.block_scale + at));
  }
  // Of the units [from, end).
  __device__ static float2 some(const Block& b, const Stretch& p, std::int32_t from, std::int32_t end) {
    const std::int32_t unit = from + static_cast<std::int32_t>(ptx::this_thread() % 32);
    return unit < end ? load(b, p, unit) : float2{};
  }
  // Before a stretch, of which the warp has these units.
  __device__ void ask(const Block& b, const Stretch& p, const Range& units) {
    if constexpr (F == Format::fp8_block) first = some(b, p, units.begin, units.end);
  }
  __device__ void begin(const Block& b, const Stretch& p, const Range& units) {
    if constexpr (F == Format::fp8_block) {
      now = first;
      if (units.count() > 32) later = some(b, p, units.begin + 32, units.end);
    }
  }
  // Before unit n of them. Returns how many follow until this is needed again.
  __device__ std::int32_t reach(const Block& b, const Stretch& p, const Range& units, std::int32_t n) {
    if constexpr (F != Format::fp8_block) return units.count();
    if (n % 32 == 0 && n > 0) {
      now = later;
      if (n + 32 < units.count()) later = some(b, p, units.begin + n + 32, units.end);
    }
    return 32 - n % 32;
  }
  __device__ float2 of(std::int32_t n) const {
    if constexpr (F != Format::fp8_block) return {};
    return {__shfl_sync(0xffffffffu, now.x, n), __shfl_sync(0xffffffffu, now.y, n)};  // modulo 32
  }
};

// Where a warp loads next.
struct Cursor {
  std::int32_t side = 0, k_blocks = 0, unit_bytes = 0;
  Item item = {};
  std::int32_t kb = 0;
  std::int32_t left = 0;  // units
  const std::uint8_t* at = nullptr;
  std::int32_t step = 0;  // bytes from a K block to the next

  Part begun = {};  // of the stretch

  __device__ void begin(const Block& b, const Stretch& p) {
    begun = {};
    left = 0;
    if (p.items == 0) return;
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
    const std::int32_t expert = uniform(b.t.expert[item.chunk]);
    const std::uint32_t row = item.row, record = row / kRecordRows, tile = record / kTileRecords;
    const std::int32_t in_tile = min(kTileRecords, s.records - static_cast<std::int32_t>(tile) * kTileRecords);
    step = in_tile * kRecordBytes;
    at = s.weights + expert * s.expert_bytes + std::int64_t{s.k_blocks} * (tile * kTileRecords * kRecordBytes) +
         std::int64_t{kb} * step + record % kTileRecords * kRecordBytes + row % kRecordRows * kBlockBytes;
  }

  // After `count` units, at most those of this item.
  __device__ void pass(const Block& b, std::int32_t count) {
    left -= count;
    kb += count;
    if (kb < k_blocks) return;
    kb = 0;
    b.to_next(item, side);
    if (left > 0) seek(b);
  }

  // As many units as there are and the ring has room for, but for `spare`.
  __device__ void fill(const Block& b, Ring& ring, std::int32_t spare) {
#pragma unroll 1
    while (left > 0 && ring.room > spare) {
      ring.put_last(at, unit_bytes);
      at += step;
      pass(b, 1);
    }
  }
};

// Sums of the item that a warp is at.
template <Format F>
struct Sums {
  float acc[4] = {};
  Item item;
  std::uint32_t operand;         // shared address of what this lane multiplies next
  std::uint32_t scale0, scale1;  // fp8_block: of its two columns

  float* to;  // where the sum of item 0 of the stretch goes

  __device__ explicit Sums(const Block& b)
      : to(b.partials() + this_warp() * kPartialFloats + row_of_lane() * kChunkRows + ptx::this_thread() % 4 * 2) {}

  __device__ void seek(const Block& b, const Stretch& p, std::int32_t kb) {
    const std::int32_t g = ptx::this_thread() % 32 / 4, t = ptx::this_thread() % 4;
    const std::uint32_t* columns = b.t.column_at[item.chunk];
    operand = columns[g] + t * (F == Format::bf16 ? 16 : 32) + kb * (F == Format::bf16 ? 128 : 256);
    if constexpr (F == Format::fp8_block) {
      const uint2 two = *reinterpret_cast<const uint2*>(columns + 2 * t);
      scale0 = two.x + p.k_blocks * 256 + kb * 4;
      scale1 = two.y + p.k_blocks * 256 + kb * 4;
    }
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
    ptx::mma_f16(chain, ptx::f16_of_codes(w0), ptx::f16_of_codes(w8), ptx::f16_of_high_codes(w0),
                 ptx::f16_of_high_codes(w8), x0, x1);
  }

  // The products of a K block are two chains, so that one does not wait for itself; their sum goes into the fp32 sum.
  __device__ void add_fp8(const Unit& u, float2 w) {
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
      acc[0] = fmaf(chain[0], x0 * w.x, acc[0]);
      acc[1] = fmaf(chain[1], x1 * w.x, acc[1]);
      acc[2] = fmaf(chain[2], x0 * w.y, acc[2]);
      acc[3] = fmaf(chain[3], x1 * w.y, acc[3]);
      scale0 += 4;
      scale1 += 4;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[i] += chain[i];
    }
  }

  __device__ void add(const Unit& u, float2 scales) {
    if constexpr (F == Format::bf16) {
      add_bf16(u);
    } else {
      add_fp8(u, scales);
    }
  }

  // Leaves the sum of this warp for item i: [16 rows][8 columns].
  __device__ void leave(const Block& b, std::int32_t i, bool from_start, bool to_end) {
    float* at = to + i * kPartialFloats;
    *reinterpret_cast<float2*>(at) = make_float2(acc[0], acc[1]);
    *reinterpret_cast<float2*>(at + 8 * kChunkRows) = make_float2(acc[2], acc[3]);
#pragma unroll
    for (float& a : acc) a = 0.0f;
    if (ptx::this_thread() % 32 != 0) return;
    const auto warp = static_cast<std::uint8_t>(ptx::this_thread() / 32);
    if (from_start) b.t.first_warp[i] = warp;
    if (to_end) b.t.last_warp[i] = warp;
  }
};

// What a warp is streaming.
template <Format F>
struct Stream {
  Ring ring;
  Cursor cursor;
  WeightScales<F> scales;

  __device__ explicit Stream(const Block& b) : ring(b) {}
  __device__ void begin(const Block& b, const Stretch& p) {
    cursor.begin(b, p);
    scales.ask(b, p, cursor.begun.range(p));
  }
  // For the first ones, before x is there.
  __device__ void ask(const Block& b, const Stretch& p) {
    begin(b, p);
    cursor.fill(b, ring, max(ring.units - kFirstUnits, 0));
  }
  // Forgets what was asked for.
  __device__ void clear() {
    ring.clear();
    cursor = {};
  }
};

// `count` units, all of one item; into each place that becomes free the next one of the cursor, if `refill`. What is
// decided once for all of them is decided outside: in fp8 the instructions of this loop limit the kernel (100, a third
// of them conversions).
template <Format F>
__device__ __forceinline__ void stream_units(Stream<F>& s, Sums<F>& sums, std::int32_t first, std::int32_t count,
                                             bool refill) {
#pragma unroll 1
  for (std::int32_t n = first; n < first + count; ++n) {
    const float2 scales = s.scales.of(n);
    s.ring.wait();
    sums.add(s.ring.read(), scales);
    __syncwarp();
    if (refill) {
      s.ring.put(s.ring.use, s.ring.use_barrier, s.cursor.at, s.cursor.unit_bytes);
      s.cursor.at += s.cursor.step;
    }
    s.ring.step();
  }
}

// The units of a stretch that are this warp's, some of which are in the ring already. As soon as all are, those of the
// next stretch follow, which `next` gives.
template <Format F, class Next>
__device__ __forceinline__ void stream_stretch(const Block& b, const Stretch& p, Next next, Stream<F>& s) {
  Sums<F> sums(b);
  const Range units = s.cursor.begun.range(p);
  std::int32_t n = 0, i = s.cursor.begun.item, kb = s.cursor.begun.kb;
  bool from_start = kb == 0, begun = false;
  s.scales.begin(b, p, units);
  if (units.count() > 0) {
    sums.item = b.item(p, i);
    sums.seek(b, p, kb);
  }
#pragma unroll 1
  for (;;) {
    if (!begun && s.cursor.left == 0) {
      s.begin(b, next());
      begun = true;
    }
    s.cursor.fill(b, s.ring, 0);
    if (n == units.count()) break;
    // The ring is full, or there is nothing to put.
    const bool refill = s.cursor.left > 0;
    std::int32_t count = min(min(p.k_blocks - kb, units.count() - n), s.scales.reach(b, p, units, n));
    if (refill) count = min(count, min(s.cursor.k_blocks - s.cursor.kb, s.cursor.left));
    stream_units(s, sums, n, count, refill);
    if (refill) {
      s.cursor.pass(b, count);
    } else {
      s.ring.room += count;
    }
    n += count;
    kb += count;
    const bool item_ends = kb == p.k_blocks;
    if (!item_ends && n < units.count()) continue;
    sums.leave(b, i, from_start, item_ends);
    if (n == units.count()) continue;
    kb = 0;
    from_start = true;
    ++i;
    b.to_next(sums.item, p.side);
    sums.seek(b, p, kb);
  }
}

// The sums over K of elements at, at + step, ... of item i's partial sums, each in ascending order of K.
template <int Count>
__device__ __forceinline__ void whole_sums(const Block& b, std::int32_t i, std::int32_t at, std::int32_t step,
                                           float (&sums)[Count]) {
  constexpr std::int32_t kAhead = 4;  // warps
  const std::int32_t first = b.t.first_warp[i], more = b.t.last_warp[i] - first;
  const float* from = b.partials() + (i + first) * kPartialFloats + at;
#pragma unroll
  for (int c = 0; c < Count; ++c) sums[c] = from[c * step];
#pragma unroll 1
  for (std::int32_t done = 0; done < more; done += kAhead) {
    float part[kAhead][Count];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      from += kPartialFloats;
#pragma unroll
      for (int c = 0; c < Count; ++c) part[j][c] = done + j < more ? from[c * step] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
#pragma unroll
      for (int c = 0; c < Count; ++c) sums[c] = done + j < more ? sums[c] + part[j][c] : sums[c];
    }
  }
}

}  // namespace sluice::cuda::sm90
