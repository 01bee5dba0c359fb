// Memory that the kernel for a few tokens (sm90/decode.h) finds as its last launch left it, so that nothing has to be
// cleared before it: a workspace promises no content.
//
// Made by the Hopper runner for all layers of a size on one GPU, which share it. Launches that may run at once have
// different scratch in their workspaces, and those that have the same never do; so the address of that scratch says
// which state is whose. Thread-safe, also while a stream is captured: a graph keeps the state that it was captured
// with.
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
  static constexpr int kStates = 8;  // whoever comes later has his scratch cleared

  // Throws Error(resources) if there is no memory, Error(internal) if the GPU refuses to clear it.
  DecodeStates(std::int64_t h_bytes, std::int32_t sm_count, int device);

  // The state for runs whose scratch is at `scratch`, which is not nullptr; none if all are others'. Once given, it
  // stays theirs.
  std::optional<sm90::DecodeState> of(const void* scratch);

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
