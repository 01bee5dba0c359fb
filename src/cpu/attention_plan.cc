#include "cpu/attention_plan.h"

#include <algorithm>

#include "cpu/ops_kernels.h"

namespace sluice::cpu {
namespace {

std::int64_t longest_sequence(const BatchView& batch) {
  std::int64_t most = 1;
  for (std::int64_t s = 0; s < batch.sequences; ++s) {
    most = std::max<std::int64_t>(most, batch.query_start[s + 1] - batch.query_start[s]);
  }
  return most;
}

}  // namespace

TileCursor::TileCursor(const BatchView& batch, std::int32_t heads, std::int32_t kv_heads, std::int32_t window)
    : batch_(batch),
      group_(heads / kv_heads),
      kv_heads_(kv_heads),
      window_(window),
      tile_heads_(std::min(group_, kTileRows)),
      tile_tokens_(static_cast<std::int32_t>(std::min<std::int64_t>(kTileRows / tile_heads_, longest_sequence(batch)))),
      token_(batch.sequences > 0 ? batch.query_start[0] : 0) {}

bool TileCursor::next(AttentionTile& tile) {
  while (sequence_ < batch_.sequences && token_ >= batch_.query_start[sequence_ + 1]) {
    if (++kv_head_ == kv_heads_) {
      kv_head_ = 0;
      ++sequence_;
    }
    if (sequence_ < batch_.sequences) token_ = batch_.query_start[sequence_];
  }
  if (sequence_ >= batch_.sequences) return false;
  const std::int64_t left = batch_.query_start[sequence_ + 1] - token_;
  tile = {.sequence = sequence_,
          .first_token = token_,
          .tokens = static_cast<std::int32_t>(std::min<std::int64_t>(tile_tokens_, left)),
          .kv_head = kv_head_,
          .first_head = kv_head_ * group_ + head_,
          .heads = std::min(tile_heads_, group_ - head_)};
  add_chunks(tile);
  head_ += tile.heads;
  if (head_ == group_) {
    head_ = 0;
    token_ += tile.tokens;
  }
  return true;
}

void TileCursor::add_chunks(AttentionTile& tile) const {
  KeySpan all = keys_of(batch_.positions[tile.first_token], window_);
  for (std::int32_t t = 1; t < tile.tokens; ++t) {
    const KeySpan keys = keys_of(batch_.positions[tile.first_token + t], window_);
    all = {std::min(all.first, keys.first), std::max(all.last, keys.last)};
  }
  tile.first_chunk = all.first / kChunkTokens;
  tile.last_chunk = (all.last + kChunkTokens - 1) / kChunkTokens;
}

}  // namespace sluice::cpu
