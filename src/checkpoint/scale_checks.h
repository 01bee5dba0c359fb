// Block scales that are still to be looked through for values that no scale may have: of the experts of a layer, or of
// one weight.
//
// Made by WeightReader for what it has read; shared with ExpertWeights::release, which looks through the scales of a
// matrix right after it was packed, while they are in a cache. Any thread may do so; finish() comes after all of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/stored_weight.h"
#include "core/thread_pool.h"

namespace sluice::ckpt {

// The scales of one tensor.
struct ScaleGrid {
  WeightRequest request;
  const TensorEntry* tensor = nullptr;
  const std::byte* data = nullptr;
  DType type = DType::f32;
  std::uint8_t most = 0xFE;  // e8m0: the largest code that is a scale; NaN is 0xFF
};

class ScaleChecks {
 public:
  explicit ScaleChecks(std::vector<ScaleGrid> grids);

  // Looks through the scales of the matrix whose codes `codes` points into, once; not after finish(). Does nothing for
  // what it does not know.
  void check_codes(const void* codes);

  struct Fault {
    const ScaleGrid* grid = nullptr;  // nullptr = none
    std::int64_t index = -1;          // of the scale in its tensor
  };
  // Looks through what is left, by all threads of `pool` unless it is nullptr: the first fault in the order of reading.
  // The requests' slices must still be there.
  Fault finish(ThreadPool* pool);

 private:
  void check(std::size_t grid, std::int64_t matrix);

  std::vector<ScaleGrid> grids_;
  std::vector<std::int64_t> begin_ = {0};  // of the matrices of each grid, counted through
  std::vector<std::size_t> by_codes_;      // grids in the order of the addresses of their codes
  std::vector<std::atomic<bool>> taken_;   // by matrix
  std::vector<std::int64_t> bad_;          // by matrix: the first wrong scale, -1 = none
};

}  // namespace sluice::ckpt
