// The merge rules of a BPE model: (left id, right id) -> (rank, merged id), in one probe.
//
// Built while loading, then immutable and safe to read from many threads.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace sluice::text {

class PairTable {
 public:
  struct Merge {
    std::uint32_t rank = 0;
    std::int32_t merged = -1;  // -1 = the pair does not merge
  };

  explicit PairTable(std::size_t expected_pairs = 0) : slots_(std::bit_ceil(2 * expected_pairs + 8)) {}

  // A later rule for the same pair replaces the earlier. The table must have been made for that many pairs.
  void set(std::int32_t left, std::int32_t right, Merge merge) {
    Slot& s = slots_[slot_of(key_of(left, right))];
    s = {key_of(left, right), merge};
  }

  Merge find(std::int32_t left, std::int32_t right) const { return slots_[slot_of(key_of(left, right))].merge; }

 private:
  struct Slot {
    std::uint64_t key = 0;
    Merge merge;  // merged < 0 = empty
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = (key * 0x9E3779B97F4A7C15u) >> 32 & mask;
    while (slots_[i].merge.merged >= 0 && slots_[i].key != key) i = (i + 1) & mask;
    return i;
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace sluice::text
