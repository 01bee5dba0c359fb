#include "cpu/pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::cpu {
namespace {

struct Piece {
  std::int64_t unit, first, last;
};

std::vector<Piece> pieces_of(int threads, const PieceSplit& split) {
  ThreadPool pool(threads);
  std::mutex mutex;
  std::vector<Piece> all;
  for_each_piece(pool, split, [&](std::int64_t unit, std::int64_t first, std::int64_t last, int) {
    const std::lock_guard<std::mutex> lock(mutex);
    all.push_back({unit, first, last});
  });
  return all;
}

TEST(Pieces, EveryPairOfEveryUnitOnce) {
  for (const int threads : {1, 2, 3, 65}) {
    for (const PieceSplit& split :
         {PieceSplit{1, 1, 1}, PieceSplit{3, 7, 3}, PieceSplit{200, 5, 4}, PieceSplit{2, 6, 9}}) {
      std::vector<int> seen(static_cast<std::size_t>(split.units * split.pairs));
      for (const Piece& p : pieces_of(threads, split)) {
        EXPECT_LT(p.first, p.last);
        EXPECT_LE(p.last, split.pairs);
        EXPECT_LE(p.last - p.first, split.grain);
        for (std::int64_t i = p.first; i < p.last; ++i) ++seen[static_cast<std::size_t>(p.unit * split.pairs + i)];
      }
      for (const int count : seen) EXPECT_EQ(count, 1) << threads << " threads";
    }
  }
}

TEST(Pieces, NothingToDo) { EXPECT_TRUE(pieces_of(2, {0, 5, 1}).empty()); }

// Every pair once, large pieces first and none larger than asked, small ones for the end.
TEST(PackingPieces, CoverAllPairsAndGetSmaller) {
  constexpr std::int64_t kMb = 1 << 20;
  for (const int threads : {1, 2, 16, 128}) {
    for (const std::int64_t pairs : {1, 5, 64, 7168}) {
      for (const std::int64_t bytes : {pairs, 100 * kMb, 4000 * kMb}) {
        const std::vector<std::int64_t> begin = packing_pieces(pairs, bytes, threads);
        ASSERT_GE(begin.size(), 2u);
        EXPECT_EQ(begin.front(), 0);
        EXPECT_EQ(begin.back(), pairs);
        for (std::size_t i = 1; i < begin.size(); ++i) {
          const std::int64_t size = begin[i] - begin[i - 1];
          ASSERT_GT(size, 0);
          EXPECT_LE(size * bytes / pairs, std::max(4 * kMb, bytes / pairs)) << "one pair or 4 MB at most";
          EXPECT_LE(size, i > 1 ? begin[i - 1] - begin[i - 2] : pairs);
        }
      }
    }
  }
  // 100 MB in 800 pairs for two threads: pieces of 4 MB, but the last 16 MB in eighths of that.
  const std::vector<std::int64_t> begin = packing_pieces(800, 100 * kMb, 2);
  EXPECT_EQ(begin[1], 32);
  EXPECT_EQ(begin[begin.size() - 1] - begin[begin.size() - 2], 4);
  EXPECT_GE(std::count_if(begin.begin(), begin.end(), [](std::int64_t b) { return b > 800 - 128; }), 2 * 8);
}

// One thread meets all pieces in the order of memory.
TEST(Pieces, OneWorkerGoesInOrder) {
  std::int64_t next = 0;
  for (const Piece& p : pieces_of(1, {4, 10, 3})) {
    EXPECT_EQ(p.unit * 10 + p.first, next);
    next = p.unit * 10 + p.last;
  }
  EXPECT_EQ(next, 40);
}

// Two workers that wait for each other at their first piece begin half of the pieces apart, and what the first of them
// leaves undone the second takes over.
TEST(Pieces, WorkersBeginApartAndHelpEachOther) {
  ThreadPool pool(2);
  std::array<std::atomic<std::int64_t>, 2> first = {-1, -1};
  std::array<std::atomic<int>, 2> done = {};
  for_each_piece(pool, {10, 1, 1}, [&](std::int64_t unit, std::int64_t, std::int64_t, int worker) {
    std::int64_t none = -1;
    const bool is_first = first[worker].compare_exchange_strong(none, unit);
    while (is_first && (first[0] < 0 || first[1] < 0)) std::this_thread::yield();
    ++done[worker];
    while (is_first && worker == 1 && done[0] < 9) std::this_thread::yield();
  });
  EXPECT_EQ(std::min<std::int64_t>(first[0], first[1]), 0);
  EXPECT_EQ(std::max<std::int64_t>(first[0], first[1]), 5);
  EXPECT_EQ(done[0], 9);
  EXPECT_EQ(done[1], 1);
}

// Each piece waits until all have begun, which takes a worker for each of them: more than there are runs.
TEST(Pieces, EveryWorkerHasWork) {
  constexpr int kWorkers = 67;
  ThreadPool pool(kWorkers);
  std::atomic<int> begun = 0;
  for_each_piece(pool, {kWorkers, 1, 1}, [&](std::int64_t, std::int64_t, std::int64_t, int) {
    ++begun;
    while (begun < kWorkers) std::this_thread::yield();
  });
  EXPECT_EQ(begun, kWorkers);
}

TEST(Pieces, PairsOfAPiece) {
  EXPECT_EQ(piece_pairs(8, 48, 96, 4), 4);
  EXPECT_EQ(piece_pairs(8, 480, 96, 4), 40);
  EXPECT_EQ(piece_pairs(1, 3, 96, 4), 3);  // never more than there are
  EXPECT_EQ(piece_pairs(1000, 48, 96, 4), 48);
}

}  // namespace
}  // namespace sluice::cpu
