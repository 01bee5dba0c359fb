// The merge rules of a BPE model: (left id, right id) -> (rank, merged id).
//
// Built while loading, then immutable and safe to read from many threads. Most pairs of a text do not merge: a small
// filter that stays in the cache answers for them without a look at the large table.
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

  explicit PairTable(std::size_t expected_pairs = 0)
      : slots_(std::bit_ceil(expected_pairs + expected_pairs / 3 + 8)),
        filter_(std::bit_ceil(slots_.size() * kFilterBitsPerSlot / 64 + 1)) {}

  // A later rule for the same pair replaces the earlier. The table must have been made for that many pairs.
  void set(std::int32_t left, std::int32_t right, Merge merge) {
    const std::uint64_t hash = hash_of(left, right);
    slots_[slot_of(key_of(left, right), hash)] = {key_of(left, right), merge};
    filter_[filter_word(hash)] |= filter_bit(hash);
  }

  // Starts to fetch what find() will look at.
  void prefetch(std::int32_t left, std::int32_t right) const {
    const std::uint64_t hash = hash_of(left, right);
    __builtin_prefetch(&filter_[filter_word(hash)]);
    __builtin_prefetch(&slots_[hash >> 24 & (slots_.size() - 1)]);
  }

  Merge find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t hash = hash_of(left, right);
    if ((filter_[filter_word(hash)] & filter_bit(hash)) == 0) return {};
    return slots_[slot_of(key_of(left, right), hash)].merge;
  }

 private:
  static constexpr std::size_t kFilterBitsPerSlot = 8;

  struct Slot {
    std::uint64_t key = 0;
    Merge merge;  // merged < 0 = empty
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  static std::uint64_t hash_of(std::int32_t left, std::int32_t right) {
    const std::uint64_t h = key_of(left, right) * 0x9E3779B97F4A7C15u;
    return (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
  }
  std::size_t filter_word(std::uint64_t hash) const { return hash >> 20 & (filter_.size() - 1); }
  static std::uint64_t filter_bit(std::uint64_t hash) { return std::uint64_t{1} << (hash >> 58); }

  std::size_t slot_of(std::uint64_t key, std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = hash >> 24 & mask;
    while (slots_[i].merge.merged >= 0 && slots_[i].key != key) i = (i + 1) & mask;
    return i;
  }

  std::vector<Slot> slots_;            // a power of two, at most half full
  std::vector<std::uint64_t> filter_;  // a bit for each rule
};

}  // namespace sluice::text
