// Times a layer of the Hopper runner on the GPU, and what the GPU could do at best.
//
// Called by `sluice bench moe --device cuda`. Method: a CUDA graph of n times [read 256 MB, event, layer, event], so
// that weights and activations come from memory and gaps between the kernels of the layer count; a trivial kernel
// between the same events shows what the method itself adds. Owns its device memory; one thread at a time;
// synchronises.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "moe/runner.h"

namespace sluice::cuda {

struct GpuCeilings {
  std::string name;
  double read_tb_per_s = 0;     // plain loads of 4 GB
  double copy_tb_per_s = 0;     // read and written
  double bf16_tflop_per_s = 0;  // matrix products alone, operands in shared memory
  double fp8_tflop_per_s = 0;
  double empty_us = 0;  // a trivial kernel between the events
};

// A batch in host memory.
struct GpuBatch {
  ConstTensorView hidden;          // [T, H] bf16
  const SlotId* ids = nullptr;     // [T, k]
  const float* weights = nullptr;  // [T, k]
  std::int32_t top_k = 0;
  SlotRange slots;
};

struct GpuTiming {
  std::vector<double> us;   // of each repetition
  double route_us = 0;      // median of the routing kernel alone; 0 where there is none
  double experts_us = 0;    // of both of the first steps
  double invariant_us = 0;  // of the layer in the row-invariant mode, where it runs differently; else 0
  double error = 0;         // relative L2 distance from the oracle, of the tokens that were checked
  int checked_rows = 0;
  std::string kernel;
};

class LayerBench {
 public:
  virtual ~LayerBench() = default;
  virtual GpuCeilings ceilings() = 0;
  // Packs the weights. The canonical ones stay with the oracle.
  virtual void load(const Problem& problem, const ExpertWeights& weights) = 0;
  virtual std::int64_t resident_bytes() const = 0;
  // First compares the tokens of a batch that was run on poisoned memory with the oracle, then times it.
  virtual GpuTiming measure(const GpuBatch& batch, int repetitions, int checked_rows) = 0;
};

// Throws Error(unsupported) where there is no GPU or this build has no CUDA.
std::unique_ptr<LayerBench> make_layer_bench(int device, ThreadPool* pool);

}  // namespace sluice::cuda
