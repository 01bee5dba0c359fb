#include "cpu/pieces.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "core/rounding.h"

namespace sluice::cpu {
namespace {

// Further workers begin in the run of another.
constexpr int kMostRuns = 64;

struct alignas(64) Run {
  std::atomic<std::int64_t> next{0};
  std::int64_t end = 0;
};

}  // namespace

std::vector<std::int64_t> packing_pieces(std::int64_t pairs, std::int64_t all_bytes, int threads) {
  constexpr std::int64_t kPieceBytes = 4 << 20, kPiecesOfThread = 8, kParts = 8;
  const std::int64_t by_bytes = pairs * kPieceBytes / std::max<std::int64_t>(all_bytes, 1);
  const std::int64_t large = std::max<std::int64_t>(std::min(by_bytes, pairs / (kPiecesOfThread * threads)), 1);
  const std::int64_t small = ceil_div(large, kParts), tail = 2 * threads * large;
  std::vector<std::int64_t> begin = {0};
  while (begin.back() < pairs) {
    const std::int64_t left = pairs - begin.back();
    begin.push_back(begin.back() + std::min(left, left > tail ? large : small));
  }
  return begin;
}

void for_each_piece(ThreadPool& pool, const PieceSplit& split,
                    FunctionRef<void(std::int64_t, std::int64_t, std::int64_t, int)> body) {
  const std::int64_t pieces = ceil_div(split.pairs, split.grain), count = split.units * pieces;
  const auto runs = static_cast<int>(std::min<std::int64_t>({count, pool.size(), kMostRuns}));
  std::array<Run, kMostRuns> all;
  for (int i = 0; i < runs; ++i) {
    all[i].next = count * i / runs;
    all[i].end = count * (i + 1) / runs;
  }
  const auto work_on = [&](Run& run, int worker) {
    while (true) {
      const std::int64_t i = run.next.fetch_add(1, std::memory_order_relaxed);
      if (i >= run.end) return;
      const std::int64_t first = i % pieces * split.grain;
      body(i / pieces, first, std::min(first + split.grain, split.pairs), worker);
    }
  };
  pool.parallel_for(std::min<std::int64_t>(count, pool.size()), 1, [&](auto begin, auto end, int worker) {
    for (std::int64_t own = begin; own < end; ++own) {
      for (int i = 0; i < runs; ++i) work_on(all[(own + i) % runs], worker);
    }
  });
}

}  // namespace sluice::cpu
