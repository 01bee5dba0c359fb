// Communication between the ranks of a run. Layers above know tokens; a Group only moves bytes and adds floats.
//
// One object a rank. Collectives are called by all ranks of the group in the same order, by one thread at a time.
// `single` is the group of one rank, so that code above needs no special case; `threads` has its ranks in one process;
// `mpi` and `nccl` are the engines between processes. Pointers are host memory where device() is the CPU and device
// memory otherwise; work of a device group is ordered on the stream of the call, and host groups ignore it.
//
// Every wait has a limit. When it passes, or a peer is known to be gone, Error(resources) names this rank, the
// operation and its number, and the peer; the group can't be used afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"

namespace sluice {

// Parts of a buffer, one a rank, in units of the operation (bytes or floats). Offsets ascend and do not overlap.
struct RankParts {
  const std::int64_t* offsets = nullptr;  // [size()], host memory
  const std::int64_t* counts = nullptr;   // [size()], host memory
};

struct AllToAll {
  const void* send = nullptr;
  RankParts send_parts;  // bytes: part r goes to rank r
  void* receive = nullptr;
  RankParts receive_parts;  // bytes: part r comes from rank r, which sends exactly as much
};

class Group {
 public:
  virtual ~Group() = default;
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Device device() const { return {}; }

  virtual void barrier() = 0;
  virtual void broadcast(void* data, std::size_t bytes, int root, Stream stream = {}) = 0;

  // In place. Each element is the sum over ranks in ascending order, added in fp32: the same bits on every rank, and
  // for an element whatever else is in the buffer.
  virtual void all_reduce_sum(float* data, std::size_t count, Stream stream = {}) = 0;

  // Part r of `receive` (bytes) becomes what rank r sends; this rank sends counts[rank()] bytes. `send` may be this
  // rank's own part of `receive`.
  virtual void all_gather(const void* send, void* receive, const RankParts& parts, Stream stream = {}) = 0;

  // `receive` [parts.counts[rank()]] becomes this rank's part of the sum over ranks of `send` (floats), added as
  // all_reduce_sum does. They do not overlap.
  virtual void reduce_scatter_sum(const float* send, float* receive, const RankParts& parts, Stream stream = {}) = 0;

  // An exchange in two halves, so that work can be done meanwhile. At most one is under way; its buffers and parts stay
  // untouched until finish_all_to_all.
  virtual void start_all_to_all(const AllToAll& exchange, Stream stream = {}) = 0;
  virtual void finish_all_to_all(Stream stream = {}) = 0;
  void all_to_all(const AllToAll& exchange, Stream stream = {}) {
    start_all_to_all(exchange, stream);
    finish_all_to_all(stream);
  }

  // Collective: the ranks that name the same `color` (>= 0) become a group, in their order here. The parent stays
  // usable and outlives it.
  virtual std::unique_ptr<Group> split(int color) = 0;

  // The limit of this rank's waits from now on; returns the one before. Infinity is for a rank that waits for work:
  // then only a peer that is known to be gone ends the wait.
  virtual double set_timeout(double seconds) { return seconds; }

  // What is known of ranks of this group that won't take part any more, in words; "" when nothing is. From any thread.
  virtual std::string gone_peers() const { return ""; }
};

std::unique_ptr<Group> make_single_group();

// `ranks` groups whose ranks are threads of this process: for tests and for running the ranks of a layer in one
// process. Each may be used by another thread; a rank that is destroyed counts as gone.
std::vector<std::unique_ptr<Group>> make_thread_groups(int ranks, double timeout_seconds);

}  // namespace sluice
