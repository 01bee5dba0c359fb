// How one attention call is cut into pieces of work: tiles of query rows, and for each tile the chunks of keys it sees.
//
// Used by attention.cc only. Integers only, no tensor data; allocates nothing. Where chunks begin depends on absolute
// positions alone; tiles may be cut in any way without changing a bit of the result.
#pragma once

#include <cstdint>

#include "moe/backend.h"

namespace sluice::cpu {

inline constexpr std::int32_t kTileRows = 32;  // most query rows of a tile

// Some tokens of one sequence with some query heads that share a KV head. Row r is token r / heads, head r % heads.
struct AttentionTile {
  std::int64_t sequence = 0;
  std::int64_t first_token = 0;  // of the step
  std::int32_t tokens = 0;
  std::int32_t kv_head = 0;
  std::int32_t first_head = 0;  // absolute query head
  std::int32_t heads = 0;
  std::int64_t first_chunk = 0;  // chunks of kChunkTokens keys, [first_chunk, last_chunk)
  std::int64_t last_chunk = 0;

  std::int32_t rows() const { return tokens * heads; }
};

struct KeySpan {
  std::int64_t first = 0;  // absolute positions [first, last)
  std::int64_t last = 0;
};

// Keys that a query at `position` sees. window = 0: all up to its own; else the last `window` of these.
inline KeySpan keys_of(std::int64_t position, std::int32_t window) {
  const std::int64_t last = position + 1;
  return {window > 0 && last > window ? last - window : 0, last};
}

// Enumerates the tiles of a batch: by sequence, KV head, then token, so that neighbours read the same keys.
class TileCursor {
 public:
  TileCursor(const BatchView& batch, std::int32_t heads, std::int32_t kv_heads, std::int32_t window);

  std::int32_t most_rows() const { return tile_tokens_ * tile_heads_; }  // of any tile
  bool next(AttentionTile& tile);                                        // false at the end

 private:
  void add_chunks(AttentionTile& tile) const;

  const BatchView& batch_;
  std::int32_t group_;  // query heads a KV head
  std::int32_t kv_heads_;
  std::int32_t window_;
  std::int32_t tile_heads_;
  std::int32_t tile_tokens_;
  // Start of the next tile.
  std::int64_t sequence_ = 0;
  std::int32_t kv_head_ = 0;
  std::int64_t token_ = 0;
  std::int32_t head_ = 0;  // within the group
};

}  // namespace sluice::cpu
