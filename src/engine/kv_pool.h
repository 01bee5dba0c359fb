// The blocks of the KV cache as sequences use them: taken, shared, published for others, given back.
//
// Owned by the scheduler, one thread. A published block stays when its last sequence lets it go, until its place is
// wanted; so available() counts it as free. Sequences hold blocks from the beginning on without gaps, which keeps every
// held block's parents held too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv_blocks.h"
#include "engine/prefix_cache.h"

namespace sluice::engine {

class KvPool {
 public:
  // Without `share` nothing is published.
  KvPool(std::int64_t blocks, std::int64_t block_tokens, bool share);

  // A block with one holder, evicting an idle one when none is free; -1 when all are held.
  std::int32_t allocate();

  // The published block that continues `parent` (PrefixCache::kRoot at the beginning) with these tokens; the caller
  // becomes one more holder. -1 when there is none.
  std::int32_t acquire(std::int32_t parent, std::uint64_t salt, std::span<const std::int32_t> tokens);
  // How many of the first blocks of `tokens` are published.
  std::int64_t count_published(std::uint64_t salt, std::span<const std::int32_t> tokens) const;

  // Lets others share a held block whose `tokens` are all computed. The answer is the block to hold from now on: when
  // an equal one is published already, that one, and `block` was given back.
  struct Published {
    std::int32_t block = -1;
    bool shared = false;  // false: it could not be published; then nothing that continues it can
  };
  Published publish(std::int32_t block, std::int32_t parent, std::uint64_t salt, std::span<const std::int32_t> tokens);

  // One holder less of each; the last ones are evicted first.
  void release(std::span<const std::int32_t> blocks);

  // Forgets what is published and held by nobody.
  void clear();

  std::int64_t total() const { return blocks_.total(); }
  std::int64_t idle() const { return cache_.idle(); }  // published, held by nobody
  std::int64_t available() const { return blocks_.available() + idle(); }
  std::int64_t used() const { return total() - available(); }
  std::int64_t block_tokens() const { return block_tokens_; }
  std::int32_t holders(std::int32_t block) const { return blocks_.holders(block) - (cache_.contains(block) ? 1 : 0); }

 private:
  void evict(std::int32_t block);
  void release(std::int32_t block);

  BlockAllocator blocks_;  // counts the cache as a holder
  PrefixCache cache_;
  std::int64_t block_tokens_;
  bool share_;
};

}  // namespace sluice::engine
