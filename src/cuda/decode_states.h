// Memory that the kernel for a few tokens (sm90/decode.h) finds as its last launch left it, so that nothing has to be
// cleared before it: a workspace promises no content.
//
// Made by the Hopper runner for all layers of a size on one GPU, which share it. A workspace belongs to one stream; so
// its address says which state is whose. Thread-safe, also while a stream is captured: a graph keeps the state that it
// was captured with. In none of the numbers of memory: 16 times the largest intermediate of a launch, 0.2 to 2 MB.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <optional>

#include "core/buffer.h"
#include "cuda/sm90/decode.h"

namespace sluice::cuda {

class DecodeStates {
 public:
  static constexpr int kStates = 8;  // a workspace that comes later has its scratch cleared before each run

  // Throws Error(resources) if there is no memory, Error(internal) if the GPU refuses to clear it.
  DecodeStates(std::int64_t h_bytes, std::int32_t sm_count, int device);

  // The state for runs in the workspace at `workspace`, which is not nullptr; none if all are others', or if h_bytes
  // are more than it has. Once given, it stays that workspace's.
  std::optional<sm90::DecodeState> of(const void* workspace, std::int64_t h_bytes);

  // State number i, whoever has it; they are given out from 0 on.
  sm90::DecodeState at(int i) const;

 private:
  std::size_t state_bytes() const;

  std::int64_t h_bytes_;
  std::size_t flag_bytes_;
  Buffer memory_;  // [kStates] of: the turn, two sets of flags, two of h
  std::array<std::atomic<const void*>, kStates> owners_{};
};

}  // namespace sluice::cuda
