// Remembers, within one encode call, which ids a short piece of text became: words repeat.
//
// Bounded: a table of fixed size in which a new piece replaces an old one; piece and ids are kept in the entry, so that
// a hit costs one cache line. Not thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace sluice::text {

class PieceCache {
 public:
  // `text_bytes` is the size of the text to come: a short one gets a small table.
  explicit PieceCache(std::size_t text_bytes)
      : entries_(std::bit_ceil(std::clamp<std::size_t>(text_bytes / 16, 16, std::size_t{1} << 15))) {}

  // Appends the ids of the piece; `encode` does so when they are not known.
  template <class Encode>
  void append(std::string_view piece, std::vector<std::int32_t>& out, Encode encode) {
    if (piece.size() > kMaxBytes) return encode(piece, out);
    Entry wanted = entry_of(piece);
    Entry& e = entries_[slot_of(wanted)];
    if (e.count > 0 && e.head == wanted.head && e.tail == wanted.tail && e.bytes == wanted.bytes) {
      for (int i = 0; i < e.count; ++i) out.push_back(e.ids[i]);
      return;
    }
    const std::size_t begin = out.size();
    encode(piece, out);
    const std::size_t count = out.size() - begin;
    if (count > kMaxIds) return;
    wanted.count = static_cast<std::uint8_t>(count);
    std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(begin), count, wanted.ids);
    e = wanted;
  }

 private:
  static constexpr std::size_t kMaxBytes = 16;
  static constexpr std::size_t kMaxIds = 3;

  // First and last bytes and the length say what a piece of up to 16 bytes is. 32 bytes: two entries a cache line.
  struct Entry {
    std::uint64_t head = 0;
    std::uint64_t tail = 0;
    std::int32_t ids[kMaxIds] = {};
    std::uint8_t bytes = 0;
    std::uint8_t count = 0;  // 0 = empty
  };

  template <class Word>
  static std::uint64_t load(const char* p) {
    Word w;
    std::memcpy(&w, p, sizeof w);
    return w;
  }

  static Entry entry_of(std::string_view s) {
    const char* p = s.data();
    const std::size_t n = s.size();
    Entry e;
    e.bytes = static_cast<std::uint8_t>(n);
    if (n >= 8) {
      e.head = load<std::uint64_t>(p);
      e.tail = load<std::uint64_t>(p + n - 8);
    } else if (n >= 4) {
      e.head = load<std::uint32_t>(p);
      e.tail = load<std::uint32_t>(p + n - 4);
    } else {
      e.head = n >= 2 ? load<std::uint16_t>(p) : 0;
      e.tail = n >= 1 ? load<std::uint8_t>(p + n - 1) : 0;
    }
    return e;
  }

  std::size_t slot_of(const Entry& e) const {
    const std::uint64_t mixed = (e.head * 0x9E3779B97F4A7C15u) ^ (e.tail + e.bytes) * 0xD6E8FEB86659FD93u;
    return (mixed ^ mixed >> 32) * 0x9E3779B97F4A7C15u >> 40 & (entries_.size() - 1);
  }

  std::vector<Entry> entries_;
};

}  // namespace sluice::text
