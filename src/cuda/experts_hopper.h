// The experts of one layer in the packed layout of sm90/launch.h, and how they get there: rows of the canonical weights
// are gathered into page-locked blocks, uploaded matrix by matrix, and packed on the GPU.
//
// Made by the Hopper runner at load time. Owns its device memory, which keeps its address when it is filled again.
// Peak device memory of a fill = the packed layer + one expert in file format; host memory = two staging blocks.
#pragma once

#include <memory>

#include "core/buffer.h"
#include "core/thread_pool.h"
#include "cuda/decode_states.h"
#include "cuda/sm90/launch.h"
#include "moe/input_scales.h"
#include "moe/runner.h"

namespace sluice::cuda {

sm90::Format sm90_format(Recipe recipe);  // of a recipe that the runner supports

class HopperExperts final : public PreparedExperts {
 public:
  HopperExperts(const Problem& problem, std::int64_t experts);

  // `pool` spreads the gathering over threads; nullptr = the calling thread alone. Returns when the upload is complete.
  void fill(const ExpertWeights& weights, ThreadPool* pool);

  std::int64_t resident_bytes() const override { return static_cast<std::int64_t>(memory.bytes()); }

  LayerSpec layer;
  Recipe recipe = Recipe::bf16;
  bool upstream_gate_alpha = false;
  bool row_invariant = false;
  int device = 0;
  int processors = 0;
  sm90::Shape shape;
  sm90::PackedLayer packed;
  LayerInputScales input_scales;
  Buffer memory;
  std::shared_ptr<DecodeStates> decode_states;  // shared with other layers; nullptr = never asked for
};

}  // namespace sluice::cuda
