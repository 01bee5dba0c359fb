// A set of strings in which the longest one that begins at a place of a text is found quickly.
//
// Built while loading, then immutable and thread-safe. Most places of a text cost one look at a table of first bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace sluice::text {

class PrefixTree {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int32_t value = -1;
  };

  PrefixTree() { first_.fill(-1); }

  // A string that is there already keeps its value. Empty strings are ignored.
  void insert(std::string_view key, std::int32_t value);

  // The leftmost match at or after `from`, the longest of those that begin there.
  bool find(std::string_view text, std::size_t from, Match& match) const;

  bool empty() const { return nodes_.empty(); }

 private:
  struct Edge {
    std::uint64_t key = 0;   // node << 8 | byte
    std::int32_t node = -1;  // -1 = empty slot
  };

  std::int32_t child(std::int32_t node, unsigned char byte) const;
  std::int32_t make_child(std::int32_t node, unsigned char byte);
  std::size_t slot_of(std::uint64_t key) const;

  std::array<std::int32_t, 256> first_;  // node after the first byte, or -1
  std::vector<std::int32_t> nodes_;      // value of the string that ends there, or -1
  std::vector<Edge> edges_;              // hash table, a power of two, at most half full
  std::size_t edge_count_ = 0;
};

}  // namespace sluice::text
