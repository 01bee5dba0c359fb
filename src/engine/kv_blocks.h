// Which blocks of the KV cache are free. Knows block numbers only, no memory and no sequences.
//
// Owned by the scheduler, one thread. Blocks are counted, so that sequences with a common prefix can share them later.
// Which block is handed out depends only on the order of calls: the last one released comes first, since it's in the
// cache of the processor.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::engine {

class BlockAllocator {
 public:
  explicit BlockAllocator(std::int64_t blocks);

  // A block with one holder, or -1 when none is free.
  std::int32_t allocate();
  // One more holder of a block that has some.
  void retain(std::int32_t block);
  // One holder less; the block is free when it was the last.
  void release(std::int32_t block);

  std::int64_t total() const { return static_cast<std::int64_t>(holders_.size()); }
  std::int64_t available() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t used() const { return total() - available(); }
  std::int32_t holders(std::int32_t block) const { return holders_.at(static_cast<std::size_t>(block)); }

 private:
  void require_held(std::int32_t block, const char* call) const;

  std::vector<std::int32_t> holders_;  // [blocks]
  std::vector<std::int32_t> free_;     // a stack
};

}  // namespace sluice::engine
