// What all threads of a pool can read and compute together right now, in a few milliseconds. For benches.
#pragma once

#include <cstdint>

#include "core/buffer.h"
#include "core/thread_pool.h"
#include "cpu/gemm.h"

namespace sluice::app {

struct Ceilings {
  double read_gb_per_s = 0;
  double peak_gflop_per_s = 0;
};

class CeilingMeter {
 public:
  // Takes a buffer of 512 MiB, several times any cache, and touches it.
  CeilingMeter(ThreadPool& pool, const cpu::GemmKernels& kernels);

  // About 25 ms. Also puts everything else out of the caches.
  Ceilings measure();

 private:
  double read_bytes_per_s();
  double operations_per_s();

  ThreadPool& pool_;
  const cpu::GemmKernels& kernels_;
  Buffer memory_;
};

}  // namespace sluice::app
