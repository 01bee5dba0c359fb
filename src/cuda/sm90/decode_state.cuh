// Which set of DecodeState (decode.h) a launch of the kernel for a few tokens uses, and how it leaves the other one for
// the next launch.
//
// `turn` counts blocks modulo twice the grid, each once, after the block has read it. So a block sees a count of its
// own launch: below the grid's blocks in every first launch of two, from there on in every second. Nobody waits for
// anything of it.
#pragma once

#include "cuda/ptx/sync.cuh"
#include "cuda/sm90/decode_args.cuh"

namespace sluice::cuda::sm90 {

__host__ __device__ inline DecodeSet set_of(const DecodeState& s, std::int32_t shares, bool second) {
  std::uint32_t* flags = s.flags + (second ? decode_flag_words(shares) : 0);
  return {{flags, flags + kDecodeFlagGap}, static_cast<unsigned char*>(s.h) + (second ? s.h_bytes : 0)};
}

// One thread, once earlier launches have ended.
__device__ __forceinline__ void take_turn(const Block& b) {
  const DecodeState& s = b.k.a.state;
  const auto shares = static_cast<std::uint32_t>(b.k.s.shares);
  const bool second = s.turn != nullptr && ptx::load_relaxed(s.turn) >= shares;
  b.t.mine = set_of(s, b.k.s.shares, second);
  b.t.other = set_of(s, b.k.s.shares, !second);
  ptx::add_relaxed(b.t.mine.flags.done + 1, 1);
}

// This block's part of clearing, behind a barrier with take_turn(). By all but the first warp, which is busy then.
__device__ __forceinline__ void leave_turn(const Block& b) {
  constexpr std::int32_t kThreads = kDecodeThreads - 32;
  const DecodeState& s = b.k.a.state;
  if (s.turn == nullptr) return;
  const std::int32_t thread = ptx::this_thread() - 32, shares = b.k.s.shares;
  const auto vectors = static_cast<std::int32_t>(s.h_bytes / sizeof(uint4));
  auto* h = static_cast<uint4*>(b.t.other.h);
#pragma unroll 1
  for (std::int32_t i = b.index * kThreads + thread; i < vectors; i += shares * kThreads) {
    h[i] = make_uint4(~0u, ~0u, ~0u, ~0u);
  }
  if (thread != 0) return;
  b.t.other.flags.claims[b.index] = 0;
  if (b.index == 0) *reinterpret_cast<uint2*>(b.t.other.flags.done) = make_uint2(0, 0);
  ptx::count_around(s.turn, 2 * static_cast<std::uint32_t>(shares) - 1);
}

}  // namespace sluice::cuda::sm90
