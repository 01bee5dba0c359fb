// The runner of Hopper GPUs (compute capability 9.0): recipes bf16, fp8-block and fp8-tensor with kernels of this
// project, no library and no tuning at start-up.
//
// Made by the wiring; also in builds without CUDA, where it refuses everything and says why (no_cuda.cc). Immutable but
// for what the kernel for a few tokens keeps between launches (decode_states.h); prepared experts may be run from
// several threads, each with its own stream and workspace. `run` is three steps on the caller's stream: R (route.h) >
// sm90::launch_experts > F (finalize.h), or one for a few tokens (sm90/decode.h); it may be captured, then the
// workspace, the arguments and the experts stay where they are as long as the graph is used. Its kernels let the next
// one of the stream start early: one of the caller's that takes that offer (programmatic launch) waits for them
// (griddepcontrol.wait) before it ends, even if it needs nothing of them.
#pragma once

#include <memory>
#include <string>

#include "core/thread_pool.h"
#include "moe/runner.h"

namespace sluice::cuda {

// What tests and measurements force; 0 = chosen from (T, k, E, shape).
struct HopperOptions {
  int token_tile = 0;
  int split = 0;
  int steps = 3;   // of a run: 1 = the first kernel alone, 2 = without the last, if that is the finalise kernel
  int gather = 0;  // rows of x by token in tiles of 128: 1 = wherever a run allows, -1 = never
  int decode = 0;  // the kernel for a few tokens: 1 = wherever it can, -1 = never
  int decode_launches = 1;     // sm90::DecodeArgs::launches
  bool decode_clears = false;  // and its scratch is in the workspace, cleared first, as where no state is left for it
};

// `pool` is used while weights are prepared; nullptr = the calling thread alone. It outlives the runner.
std::unique_ptr<Runner> make_hopper_runner(ThreadPool* pool, const HopperOptions& options = {});

// The kernel that the runner of default options takes for a layer and a number of tokens, for `explain` and the bench;
// in fp8-tensor, with static scales.
std::string hopper_kernel(const Problem& problem, std::int64_t local_experts, std::int64_t tokens);

}  // namespace sluice::cuda
