// Ranks as GPUs, over NCCL, which is loaded when the first such group is made. nccl.cc, or no_nccl.cc in a build
// without CUDA or NCCL's header.
//
// Buffers are device memory, and operations are ordered on the stream of the call: they return when they are enqueued.
// A watch of each group ends operations that do not complete within the limit, or whose peer is gone: the stream goes
// on with undefined data, and the next call of the group throws what happened. Scratch grows with the largest sum: one
// buffer of it a rank.
#pragma once

#include <memory>

#include "comm/group.h"
#include "comm/mpi.h"

namespace sluice::comm {

struct NcclOptions {
  int device = 0;  // of this rank; two ranks can't share one
  double timeout_seconds = 300;
};

// Collective over `host`, whose ranks become those of the group. `host` outlives it and is not used by another thread
// during a call; it carries the start, barriers and splits, and tells which peers are gone.
std::unique_ptr<Group> make_nccl_group(Group& host, const NcclOptions& options);

EngineFound find_nccl();

}  // namespace sluice::comm
