// Remembers, within one encode call, which ids a piece of text became: words repeat.
//
// Bounded: a table of fixed size in which a new piece replaces an old one. It keeps no copies: pieces point into the
// text of the call, results into its output. Not thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/string_table.h"

namespace sluice::text {

class PieceCache {
 public:
  // `text_bytes` is the size of the text to come: a short one gets a small table.
  explicit PieceCache(std::size_t text_bytes)
      : entries_(std::bit_ceil(std::clamp<std::size_t>(text_bytes / 16, 16, std::size_t{1} << 15))) {}

  // Appends the ids of the piece; `encode` does so when they are not known.
  template <class Encode>
  void append(std::string_view piece, std::vector<std::int32_t>& out, Encode encode) {
    Entry& e = entries_[hash_bytes(piece) & (entries_.size() - 1)];
    const std::size_t begin = out.size();
    if (e.piece == piece && e.count > 0) {
      out.resize(begin + e.count);
      std::copy_n(out.begin() + e.begin, e.count, out.begin() + static_cast<std::ptrdiff_t>(begin));
      return;
    }
    encode(piece, out);
    e = {piece, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(out.size() - begin)};
  }

 private:
  struct Entry {
    std::string_view piece;
    std::uint32_t begin = 0;  // in the output
    std::uint32_t count = 0;
  };
  std::vector<Entry> entries_;
};

}  // namespace sluice::text
