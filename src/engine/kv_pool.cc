#include "engine/kv_pool.h"

namespace sluice::engine {

KvPool::KvPool(std::int64_t blocks, std::int64_t block_tokens, bool share)
    : blocks_(blocks), cache_(share ? blocks : 0, block_tokens), block_tokens_(block_tokens), share_(share) {}

std::int32_t KvPool::allocate() {
  const std::int32_t block = blocks_.allocate();
  if (block >= 0) return block;
  const std::int32_t victim = cache_.oldest_idle();
  if (victim < 0) return -1;
  evict(victim);
  return blocks_.allocate();
}

std::int32_t KvPool::acquire(std::int32_t parent, std::uint64_t salt, std::span<const std::int32_t> tokens) {
  if (!share_ || (parent != PrefixCache::kRoot && !cache_.contains(parent))) return -1;
  const std::int32_t block = cache_.find(parent, salt, tokens);
  if (block < 0) return -1;
  blocks_.retain(block);
  cache_.set_idle(block, false);
  return block;
}

std::int64_t KvPool::count_published(std::uint64_t salt, std::span<const std::int32_t> tokens) const {
  if (!share_) return 0;
  const auto width = static_cast<std::size_t>(block_tokens_);
  std::int64_t count = 0;
  std::int32_t parent = PrefixCache::kRoot;
  for (; tokens.size() >= width; tokens = tokens.subspan(width)) {
    parent = cache_.find(parent, salt, tokens.first(width));
    if (parent < 0) break;
    ++count;
  }
  return count;
}

KvPool::Published KvPool::publish(std::int32_t block, std::int32_t parent, std::uint64_t salt,
                                  std::span<const std::int32_t> tokens) {
  if (!share_) return {block, false};
  const std::int32_t equal = acquire(parent, salt, tokens);
  if (equal >= 0) {
    release(block);
    return {equal, true};
  }
  if (!cache_.insert(block, parent, salt, tokens)) return {block, false};
  blocks_.retain(block);
  return {block, true};
}

void KvPool::release(std::span<const std::int32_t> blocks) {
  for (std::size_t i = blocks.size(); i > 0; --i) release(blocks[i - 1]);
}

void KvPool::release(std::int32_t block) {
  blocks_.release(block);
  if (share_ && cache_.contains(block) && blocks_.holders(block) == 1) cache_.set_idle(block, true);
}

void KvPool::clear() {
  for (std::int32_t block = cache_.oldest_idle(); block >= 0; block = cache_.oldest_idle()) evict(block);
}

void KvPool::evict(std::int32_t block) {
  cache_.erase(block);
  blocks_.release(block);
}

}  // namespace sluice::engine
