// Rotary position embedding: the table of angles and its use.
//
// The table is made at load time by CpuBackend::make_rope and constant afterwards, so any number of threads may read
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "core/thread_pool.h"
#include "cpu/ops_kernels.h"
#include "moe/backend.h"

namespace sluice::cpu {

// The angle of a position is the float32 product position * inv_freq, as in the code that models are trained with: a
// more exact product would turn late positions by another angle. Its cosine and sine are then exact up to rounding.
class CpuRopeTable final : public RopeTable {
 public:
  CpuRopeTable(const std::vector<float>& inv_freq, float factor, std::int64_t max_positions, ThreadPool& pool);

  std::int64_t pairs() const { return pairs_; }
  std::int64_t positions() const { return positions_; }
  const float* cosines(std::int64_t position) const { return memory_.as<float>() + position * 2 * pairs_; }  // [pairs]
  const float* sines(std::int64_t position) const { return cosines(position) + pairs_; }

 private:
  std::int64_t pairs_;
  std::int64_t positions_;
  Buffer memory_;  // [positions, 2, pairs] f32
};

// Rotates 2 * pairs columns of every head from args.first on; the rest stay as they are.
void apply_rope(const RopeArgs& args, const OpsKernels& kernels, ThreadPool& pool);

}  // namespace sluice::cpu
