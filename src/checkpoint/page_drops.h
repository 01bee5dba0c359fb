// Gives back the pages of mapped files that have been read, many tensors at a time.
//
// Owned by a TensorReader and by whoever it has given its function to; called from any thread. Every call of the system
// interrupts all processors of the process, which takes longer than dropping the pages of one expert does, so that
// ranges are collected and those that lie next to each other become one.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/thread_pool.h"

namespace sluice::ckpt {

using ByteRange = std::span<const std::byte>;

// In the order of their addresses; ranges of one of `files` that are at most `gap_bytes` apart have become one.
std::vector<ByteRange> joined_ranges(std::vector<ByteRange> ranges, const std::vector<ByteRange>& files,
                                     std::size_t gap_bytes);

class PageDrops {
 public:
  // Ranges that lie in none of `files` are ignored.
  explicit PageDrops(std::vector<ByteRange> files) : files_(std::move(files)) {}

  // Drops it now or later: about kMostPendingBytes stay mapped at most. What lies between two ranges, such as the
  // scales of an expert, is dropped with them; it is read again if it was still needed.
  void add(ByteRange range);
  // Drops all that was added, by all threads of `pool` unless it is nullptr. The caller may use the pool.
  void flush(ThreadPool* pool = nullptr);

  static constexpr std::size_t kMostPendingBytes = 24u << 20;

 private:
  std::vector<ByteRange> files_;
  std::mutex mutex_;  // guards what follows
  std::vector<ByteRange> pending_;
  std::size_t pending_bytes_ = 0;
};

}  // namespace sluice::ckpt
