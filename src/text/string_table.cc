#include "text/string_table.h"

#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "core/error.h"

namespace sluice::text {
namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

std::uint64_t hash_bytes(std::string_view s) {
  constexpr std::uint64_t kOdd1 = 0x9E3779B97F4A7C15u;
  constexpr std::uint64_t kOdd2 = 0xD6E8FEB86659FD93u;
  std::uint64_t h = mix(s.size() ^ kOdd2, kOdd1);
  while (s.size() >= 8) {
    std::uint64_t word;
    std::memcpy(&word, s.data(), 8);
    h = mix(h ^ word, kOdd1);
    s.remove_prefix(8);
  }
  std::uint64_t tail = 0;
  for (std::size_t i = 0; i < s.size(); ++i) tail |= std::uint64_t{static_cast<unsigned char>(s[i])} << (8 * i);
  return mix(h ^ tail, kOdd2);
}

StringTable::StringTable(std::size_t expected_entries) : slots_(std::bit_ceil(2 * expected_entries + 8)) {}

std::size_t StringTable::slot_of(std::string_view key, std::uint64_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = (hash >> 32) & mask;
  while (true) {
    const Slot& s = slots_[i];
    if (s.value < 0) return i;
    if (s.hash == static_cast<std::uint32_t>(hash) && s.bytes == key.size() &&
        std::memcmp(bytes_.data() + s.offset, key.data(), key.size()) == 0) {
      return i;
    }
    i = (i + 1) & mask;
  }
}

bool StringTable::insert(std::string_view key, std::int32_t value) {
  if (2 * (entries_ + 1) > slots_.size()) grow();
  const std::uint64_t hash = hash_bytes(key);
  Slot& s = slots_[slot_of(key, hash)];
  if (s.value >= 0) return false;
  if (bytes_.size() + key.size() > std::numeric_limits<std::uint32_t>::max()) {
    fail(ErrorCode::bad_input, "the strings of a vocabulary exceed 4 GiB");
  }
  s = {static_cast<std::uint32_t>(hash), value, static_cast<std::uint32_t>(bytes_.size()),
       static_cast<std::uint32_t>(key.size())};
  bytes_.append(key);
  ++entries_;
  return true;
}

std::int32_t StringTable::find(std::string_view key) const { return slots_[slot_of(key, hash_bytes(key))].value; }

void StringTable::grow() {
  std::vector<Slot> old(2 * slots_.size());
  std::swap(old, slots_);
  for (const Slot& s : old) {
    if (s.value < 0) continue;
    const std::string_view key(bytes_.data() + s.offset, s.bytes);
    slots_[slot_of(key, hash_bytes(key))] = s;
  }
}

}  // namespace sluice::text
