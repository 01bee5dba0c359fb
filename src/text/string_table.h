// A map from byte strings to numbers for vocabularies: one block of memory for all strings, one probe for most lookups.
//
// Built while loading, then immutable and safe to read from many threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text {

// 64 well-mixed bits; short strings in a few nanoseconds. Not for untrusted keys that must not collide.
std::uint64_t hash_bytes(std::string_view bytes);

class StringTable {
 public:
  explicit StringTable(std::size_t expected_entries = 0);

  // False when the string is there already; the table is unchanged then. Throws Error(bad_input) past 2^32 bytes.
  bool insert(std::string_view key, std::int32_t value);

  // The number of the string, or -1.
  std::int32_t find(std::string_view key) const;

  std::size_t size() const { return entries_; }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t value = -1;  // -1 = empty
    std::uint32_t offset = 0;
    std::uint32_t bytes = 0;
  };

  std::size_t slot_of(std::string_view key, std::uint64_t hash) const;
  void grow();

  std::vector<Slot> slots_;  // a power of two, at most half full
  std::string bytes_;
  std::size_t entries_ = 0;
};

}  // namespace sluice::text
