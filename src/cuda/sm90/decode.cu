// The kernel for a few tokens (decode.h) and its launch.
#include "cuda/launch.cuh"
#include "cuda/sm90/decode_finish.cuh"
#include "cuda/sm90/decode_stages.cuh"
#include "cuda/sm90/decode_state.cuh"

namespace sluice::cuda::sm90 {
namespace {

constexpr std::int64_t kLeastPatience = 8000;  // cycles, about 4 us
constexpr std::uint32_t kLateShares = 8;       // one in so many may be missing when blocks look at the intermediate
constexpr std::size_t kMostSharedBytes = 227 * 1024;  // of a block
static_assert(sizeof(DecodeTables) + kDecodeSharedBytes <= kMostSharedBytes);

constexpr std::int32_t kClearThreads = 256;

// Clears the flags, and marks the intermediate as not written (load_features).
__global__ void decode_clear(std::uint32_t* flags, std::int32_t count, uint4* h, std::int32_t vectors) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  const auto thread = static_cast<std::int32_t>(blockIdx.x * kClearThreads + threadIdx.x);
  const auto threads = static_cast<std::int32_t>(gridDim.x * kClearThreads);
  for (std::int32_t i = thread; i < count; i += threads) flags[i] = 0;
  for (std::int32_t i = thread; i < vectors; i += threads) h[i] = make_uint4(~0u, ~0u, ~0u, ~0u);
}

__device__ bool claim(const DecodeFlags& f, std::int32_t share) { return atomicCAS(f.claims + share, 0u, 1u) == 0u; }

// One warp: a share that no block has claimed, now claimed by this one, or -1. `none` = all are claimed.
__device__ std::int32_t claim_any(const Block& b, const DecodeFlags& f, bool& none) {
  const std::int32_t lane = threadIdx.x % 32, shares = b.k.s.shares;
  none = true;
  for (std::int32_t base = 1; base < shares; base += 32) {
    const std::int32_t share = (b.index + base + lane) % shares;
    const bool open = base + lane < shares && ptx::load_relaxed(f.claims + share) == 0u;
    const unsigned some = __ballot_sync(0xffffffffu, open);
    if (some == 0) continue;
    none = false;
    const std::int32_t chosen = __shfl_sync(0xffffffffu, share, __ffs(some) - 1);
    const bool mine = lane == 0 && claim(f, chosen);
    return __ballot_sync(0xffffffffu, mine) != 0 ? chosen : -1;
  }
  return -1;
}

// Whether to look at the intermediate now. All shares are done; or most are, and as every block runs, so will the
// others: then those that are here come while these are waited for.
__device__ bool may_look(const Block& b, const DecodeFlags& f) {
  const uint2 counts = ptx::load_relaxed_pair(f.done);
  const auto shares = static_cast<std::uint32_t>(b.k.s.shares), most = shares - shares / kLateShares;
  return __shfl_sync(0xffffffffu, counts.x == shares || (counts.y == shares && counts.x >= most) ? 1 : 0, 0) != 0;
}

// Once may_look(): -1; or, where that takes longer than this block has taken so far, a share that no block has started:
// to look for one takes some us, in which nobody sees that the rest has come. After a first long wait others are not
// waited for. The other warps leave the turn meanwhile, if they have not.
__device__ std::int32_t next_share(const Block& b, bool& patient, bool& left) {
  if (threadIdx.x < 32) {
    const DecodeFlags f = b.t.mine.flags;
    const std::int64_t now = clock64(), until = now + max(kLeastPatience, now - b.t.began);
    std::int32_t share = -1;
    bool none = false;
    while (share < 0) {
      if (may_look(b, f)) break;
      patient = __shfl_sync(0xffffffffu, patient && clock64() <= until ? 1 : 0, 0) != 0;
      if (!none && !patient) share = claim_any(b, f, none);
    }
    if (threadIdx.x == 0) b.t.next_share = share;
  } else if (!left) {
    leave_turn(b);
  }
  left = true;
  __syncthreads();
  return b.t.next_share;
}

// Which rows the items of this block have. One thread.
__device__ void set_sides(const Block& b) {
  const DecodeSizes& s = b.k.s;
  const Range mine = share_of(s.groups2, s.by_shares, b.index);
  b.t.sides[0] = {s.groups1, 0, s.groups1 * kGroupRows, kGroupRows, s.by_groups1};
  b.t.sides[1] = {mine.count(), mine.begin * s.rows2, mine.end * s.rows2, s.rows2,
                  mine.count() == s.most2 ? s.by_most2 : s.by_less2};
}

// Makes x ready, after the first weights were asked for.
template <Format F>
__device__ __forceinline__ void prepare_x(const Block& b, const Share& share) {
  ptx::copies_wait();
  __syncthreads();
  fetch_terms<F>(b, stretch_of(b, share, share.rounds));
  set_columns(b, [&](std::int32_t place) { return b.k.s.by_top_k.quotient(b.t.route_of[place]) * b.k.s.x_stride; });
  finish_x<F>(b);
}

// In thread 0: whether another block has the share of this one. Early enough that the answer is there when it is
// needed.
__device__ __forceinline__ std::uint32_t share_taken(const Block& b) {
  return threadIdx.x == 0 ? atomicCAS(b.t.mine.flags.claims + b.index, 0u, 1u) : 0;
}

// Ends a stretch of FC1. `last` = of the share.
template <Format F, bool Lean>
__device__ __forceinline__ void end_first(const Block& b, const Stretch& p, std::uint32_t taken, bool last) {
  ptx::copies_wait();
  if (threadIdx.x == 0) b.t.owned = taken == 0u;
  __syncthreads();
  if (b.t.owned != 0) finish_first<F, Lean>(b, p);
  __syncthreads();
  if (last && threadIdx.x == 0 && taken == 0u) ptx::add_relaxed(b.t.mine.flags.done, 1);
}

// What stretch i needs in shared memory besides weights; those of FC2 wait for elements that are on their way.
template <Format F, bool Lean>
__device__ __forceinline__ void prepare_stretch(const Block& b, const Share& share, std::int32_t i) {
  const std::int32_t round2 = i - share.rounds;
  if (round2 != 0) fetch_terms<F>(b, stretch_of(b, share, i));
  if (round2 < 0) {
    if (i == 0) __syncthreads();
    if (!Lean && i == 0) record_x<F>(b);
    return;
  }
  fetch_h<F>(b, places_of(b, round2));
  ptx::copies_wait();
  __syncthreads();
  if (!Lean) record_h<F>(b, places_of(b, round2));
}

// One block a multiprocessor. No block waits for one that has not started: FC1 of such a block is computed by those
// that wait for it, and nothing waits for FC2.
//
// Goes through stretches: those of FC1 of its own share, then of shares that it takes over, then those of FC2. While
// one is multiplied, the first weights of the next are asked for.
//
// `Lean`: what is_lean() says. Code that few launches need costs the others: caches of instructions are cold, and what
// lies more than 64 KB behind the beginning came 1.6 us late.
template <Format F, bool Lean>
__global__ void __launch_bounds__(kDecodeThreads, 1) decode(const __grid_constant__ DecodeKernel k) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ DecodeTables tables;
  const Block b{k, tables, shared, k.first_block + static_cast<std::int32_t>(blockIdx.x)};
  wait_for_previous_kernel();
  let_next_kernel_start();
  const LaneRoute route(k.a);
  fetch_x(b);
  Stream<F> stream(b);
  if (threadIdx.x == 32) set_sides(b);
  if (threadIdx.x == 64) tables.began = clock64();
  if (threadIdx.x == 96) take_turn(b);
  if (threadIdx.x < 32) make_tables(k, tables, route);
  __syncthreads();
  Share share = share_number(b, b.index);
  std::uint32_t taken = 0;
  std::int32_t i = -1;
  bool patient = true, left = false;
#pragma unroll 1
  for (bool first = true;;) {
    if (i < 0) {
      stream.ask(b, stretch_of(b, share, 0));
      if (first) {
        prepare_x<F>(b, share);
        taken = share_taken(b);
      }
      first = false;
    } else {
      stream_stretch<F>(
          b, stretch_of(b, share, i), [&] { return stretch_of(b, share, i + 1); }, stream);
      if (i >= share.rounds) {
        __syncthreads();
        if (Lean || ends_at_once(b)) {
          write_sums<F>(b);
          return;
        }
        finish_second<F>(b, stretch_of(b, share, i));
        __syncthreads();
        if (i - share.rounds == tables.rounds2 - 1) break;
      } else {
        end_first<F, Lean>(b, stretch_of(b, share, i), taken, i == share.rounds - 1);
        const std::int32_t next = i == share.rounds - 1 ? next_share(b, patient, left) : -1;
        if (next >= 0) {
          stream.clear();
          share = share_number(b, next);
          taken = 0;
          i = -1;
          continue;
        }
      }
    }
    prepare_stretch<F, Lean>(b, share, ++i);
  }
  write_output(b);
}

DecodeSide decode_side(const DecodeArgs& a, int side) {
  const Extents e = extents(a.shape);
  DecodeSide s{};
  s.weights = side == 0 ? a.weights.w1 : a.weights.w2;
  s.block_scale = side == 0 ? a.weights.block_scale1 : a.weights.block_scale2;
  s.row_scale = side == 0 ? a.weights.row_scale1 : a.weights.row_scale2;
  s.bias = side == 0 ? a.weights.bias1 : a.weights.bias2;
  s.k_blocks = side == 0 ? e.k_blocks1 : e.k_blocks2;
  s.records = side == 0 ? e.records1 : e.records2;
  s.tiles = side == 0 ? e.tiles1 : e.tiles2;
  s.expert_bytes = std::int64_t{s.records} * s.k_blocks * kRecordBytes;
  return s;
}

using Kernel = void (*)(DecodeKernel);

template <bool Lean>
Kernel kernel_of(Format format) {
  switch (format) {
    case Format::bf16:
      return decode<Format::bf16, Lean>;
    case Format::fp8_block:
      return decode<Format::fp8_block, Lean>;
    default:
      return decode<Format::fp8_tensor, Lean>;
  }
}

// Whether the activation is a GateCurve, no stages are recorded, and whatever the ids are ends_at_once() is true.
bool is_lean(const DecodeKernel& k) {
  const std::int64_t routes = k.a.tokens * k.a.top_k;
  return k.is_curve && k.a.stages.route_row == nullptr && !k.a.routes && 32 % k.a.top_k == 0 && routes <= k.s.h_rows &&
         routes * k.s.most2 <= k.s.cap2;
}

Kernel kernel_of(const DecodeKernel& k) {
  return is_lean(k) ? kernel_of<true>(k.a.shape.format) : kernel_of<false>(k.a.shape.format);
}

// The blocks of launch `part` of several. Those after the first are no dependents: they start when the one before ends.
cudaError_t launch_part(DecodeKernel k, std::int32_t part, cudaStream_t stream) {
  const Range blocks = share_of(k.s.shares, Divisor::of(k.a.launches), part);
  k.first_block = blocks.begin;
  const dim3 grid(static_cast<unsigned>(blocks.count())), threads(kDecodeThreads);
  if (part == 0) return launch_dependent(kernel_of(k), grid, threads, k.s.bytes, stream, k);
  kernel_of(k)<<<grid, threads, k.s.bytes, stream>>>(k);
  return cudaGetLastError();
}

}  // namespace

std::size_t decode_flag_bytes(std::int32_t sm_count) {
  return static_cast<std::size_t>(decode_flag_words(sm_count)) * sizeof(std::uint32_t);
}

std::size_t decode_h_bytes(const Shape& shape, std::int64_t routes) {
  const std::size_t rows = static_cast<std::size_t>(routes < kDecodeRoutes ? routes : kDecodeRoutes);
  const std::size_t element = shape.format == Format::bf16 ? 2 : shape.format == Format::fp8_block ? 4 : 1;
  return rows * static_cast<std::size_t>(extents(shape).k_blocks2) * block_elements(shape.format) * element;
}

cudaError_t prepare_decode() {
  for (const Format format : {Format::bf16, Format::fp8_block, Format::fp8_tensor}) {
    for (const Kernel kernel : {kernel_of<true>(format), kernel_of<false>(format)}) {
      const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kDecodeSharedBytes);
      if (status != cudaSuccess) return status;
    }
  }
  return cudaSuccess;
}

cudaError_t launch_decode_clear(const DecodeArgs& a, cudaStream_t stream) {
  constexpr std::int32_t kMostBlocks = 16;
  const auto count = static_cast<std::int32_t>(decode_flag_bytes(a.sm_count) / sizeof(std::uint32_t));
  const auto vectors = static_cast<std::int32_t>(decode_h_bytes(a.shape, a.tokens * a.top_k) / sizeof(uint4));
  const auto blocks = std::clamp((vectors + kClearThreads - 1) / kClearThreads, 1, kMostBlocks);
  return launch_dependent(decode_clear, dim3(static_cast<unsigned>(blocks)), dim3(kClearThreads), 0, stream,
                          a.state.flags, count, static_cast<uint4*>(a.state.h), vectors);
}

cudaError_t launch_decode(const DecodeArgs& a, cudaStream_t stream) {
  DecodeKernel k{};
  k.a = a;
  k.s = decode_sizes(a.shape, a.tokens, a.top_k, a.sm_count);
  if (k.s.bytes == 0 || a.launches < 1 || a.launches > k.s.shares) return cudaErrorInvalidValue;
  k.sides[0] = decode_side(a, 0);
  k.sides[1] = decode_side(a, 1);
  k.is_curve = make_curve(a.activation, k.curve);
  cudaError_t status = a.state.turn == nullptr ? launch_decode_clear(a, stream) : cudaSuccess;
  for (std::int32_t part = 0; status == cudaSuccess && part < a.launches; ++part) {
    status = launch_part(k, part, stream);
  }
  return status;
}

}  // namespace sluice::cuda::sm90
