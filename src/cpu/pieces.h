// Hands out the pairs of panels of one product to the workers of a pool, so that each reads memory in one direction.
//
// Called by the runner and by dense projections, from one thread at a time; no state. Which worker does what is decided
// at run time.
#pragma once

#include <cstdint>
#include <vector>

#include "core/function_ref.h"
#include "core/thread_pool.h"

namespace sluice::cpu {

// `units` (chunks of rows, heads) times `pairs`, cut into pieces of `grain` pairs; the last of a unit may be smaller.
struct PieceSplit {
  std::int64_t units = 0;
  std::int64_t pairs = 0;
  std::int64_t grain = 1;
};

// Pairs of a piece, so that `units` x `pairs` make about `pieces` pieces of at least `least` pairs.
constexpr std::int64_t piece_pairs(std::int64_t units, std::int64_t pairs, std::int64_t pieces, std::int64_t least) {
  const std::int64_t wanted = units * pairs / pieces;
  const std::int64_t floor = least < pairs ? least : pairs;
  return wanted < floor ? floor : wanted < pairs ? wanted : pairs;
}

// Cuts pairs that are packed into new memory into pieces: where each begins, and the end of the last. Two threads that
// are the first in a huge page at the same time both clear one, so that pieces are large; the last ones are small, so
// that all threads end together.
std::vector<std::int64_t> packing_pieces(std::int64_t pairs, std::int64_t all_bytes, int threads);

// Calls body(unit, first pair, last pair, worker) for all pieces. Each worker goes through a run of pieces that follow
// each other and takes from the runs of others when its own is done. Handing out pieces in turn instead costs up to a
// quarter of the bandwidth (docs/performance-cpu.md): every piece ends a stream, beyond whose end hardware has fetched
// what another worker reads, and begins one.
void for_each_piece(ThreadPool& pool, const PieceSplit& split,
                    FunctionRef<void(std::int64_t unit, std::int64_t first, std::int64_t last, int worker)> body);

}  // namespace sluice::cpu
