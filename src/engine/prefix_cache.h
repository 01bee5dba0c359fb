// Full KV blocks by what they hold: a tree in which each block continues its parent by block_tokens tokens.
//
// Owned by KvPool, one thread. Knows block numbers and tokens, no memory, no holders. A block is found by a hash of the
// whole beginning and then compared token by token with its chain, so a hit is never a collision; salts separate trees.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sluice::engine {

class PrefixCache {
 public:
  PrefixCache(std::int64_t blocks, std::int64_t block_tokens);

  // The block that continues `parent` (kRoot = nothing yet; cached otherwise) with these block_tokens tokens, or kNone.
  std::int32_t find(std::int32_t parent, std::uint64_t salt, std::span<const std::int32_t> tokens) const;

  // Makes `block` that continuation. False when it can't be: the parent is no longer cached, or another chain has the
  // same hash.
  bool insert(std::int32_t block, std::int32_t parent, std::uint64_t salt, std::span<const std::int32_t> tokens);

  // Forgets a block without children.
  void erase(std::int32_t block);

  // Blocks that may be evicted are idle: held by nobody else. Of the idle ones without children the one that became
  // idle first goes first, and then its parent may follow.
  void set_idle(std::int32_t block, bool idle);
  std::int32_t oldest_idle() const;  // kNone when there is none
  std::int64_t idle() const { return idle_; }

  bool contains(std::int32_t block) const { return block >= 0 && block < std::ssize(nodes_) && node(block).cached; }
  std::int64_t size() const { return std::ssize(index_); }

  static constexpr std::int32_t kRoot = -1;
  static constexpr std::int32_t kNone = -1;

 private:
  struct Node {
    bool cached = false;
    bool idle = false;
    std::int32_t parent = kRoot;
    std::int32_t children = 0;
    std::uint64_t salt = 0;
    std::uint64_t hash = 0;        // of everything from the root
    std::uint64_t idle_since = 0;  // by clock_
  };
  Node& node(std::int32_t block) { return nodes_[static_cast<std::size_t>(block)]; }
  const Node& node(std::int32_t block) const { return nodes_[static_cast<std::size_t>(block)]; }
  std::uint64_t hash(std::int32_t parent, std::uint64_t salt, std::span<const std::int32_t> tokens) const;
  std::int32_t* tokens_of(std::int32_t block) { return tokens_.data() + block * block_tokens_; }
  const std::int32_t* tokens_of(std::int32_t block) const { return tokens_.data() + block * block_tokens_; }
  void update_leaf(std::int32_t block);

  std::int64_t block_tokens_;
  std::vector<Node> nodes_;                                  // [blocks]
  std::vector<std::int32_t> tokens_;                         // [blocks, block_tokens]
  std::unordered_map<std::uint64_t, std::int32_t> index_;    // hash > block
  std::set<std::pair<std::uint64_t, std::int32_t>> leaves_;  // idle without children, by idle_since
  std::int64_t idle_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace sluice::engine
