#include "engine/prefix_cache.h"

#include <algorithm>

namespace sluice::engine {
namespace {

// The finaliser of SplitMix64.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

PrefixCache::PrefixCache(std::int64_t blocks, std::int64_t block_tokens)
    : block_tokens_(block_tokens),
      nodes_(static_cast<std::size_t>(blocks)),
      tokens_(static_cast<std::size_t>(blocks * block_tokens)) {}

std::uint64_t PrefixCache::hash(std::int32_t parent, std::uint64_t salt, std::span<const std::int32_t> tokens) const {
  std::uint64_t h = parent == kRoot ? mix(salt + 0x9e3779b97f4a7c15ull) : node(parent).hash;
  for (const std::int32_t t : tokens) h = mix(h + static_cast<std::uint32_t>(t) + 0x9e3779b97f4a7c15ull);
  return h;
}

std::int32_t PrefixCache::find(std::int32_t parent, std::uint64_t salt, std::span<const std::int32_t> tokens) const {
  const auto it = index_.find(hash(parent, salt, tokens));
  if (it == index_.end()) return kNone;
  const Node& n = node(it->second);
  const bool same =
      n.parent == parent && n.salt == salt && std::equal(tokens.begin(), tokens.end(), tokens_of(it->second));
  return same ? it->second : kNone;
}

bool PrefixCache::insert(std::int32_t block, std::int32_t parent, std::uint64_t salt,
                         std::span<const std::int32_t> tokens) {
  if (parent != kRoot && !contains(parent)) return false;
  const std::uint64_t h = hash(parent, salt, tokens);
  if (!index_.emplace(h, block).second) return false;
  node(block) = {.cached = true, .parent = parent, .salt = salt, .hash = h};
  std::copy(tokens.begin(), tokens.end(), tokens_of(block));
  if (parent != kRoot) {
    ++node(parent).children;
    update_leaf(parent);
  }
  return true;
}

void PrefixCache::erase(std::int32_t block) {
  set_idle(block, false);
  const std::int32_t parent = node(block).parent;
  index_.erase(node(block).hash);
  node(block) = {};
  if (parent == kRoot) return;
  --node(parent).children;
  update_leaf(parent);
}

void PrefixCache::set_idle(std::int32_t block, bool idle) {
  Node& n = node(block);
  if (n.idle == idle) return;
  leaves_.erase({n.idle_since, block});
  n.idle = idle;
  n.idle_since = ++clock_;
  idle_ += idle ? 1 : -1;
  update_leaf(block);
}

std::int32_t PrefixCache::oldest_idle() const { return leaves_.empty() ? kNone : leaves_.begin()->second; }

void PrefixCache::update_leaf(std::int32_t block) {
  const Node& n = node(block);
  if (n.idle && n.children == 0) {
    leaves_.emplace(n.idle_since, block);
  } else {
    leaves_.erase({n.idle_since, block});
  }
}

}  // namespace sluice::engine
