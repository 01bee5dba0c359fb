#include "engine/kv_blocks.h"

#include <string>

#include "core/error.h"

namespace sluice::engine {

BlockAllocator::BlockAllocator(std::int64_t blocks) : holders_(static_cast<std::size_t>(blocks), 0) {
  free_.reserve(holders_.size());
  for (std::int64_t i = blocks; i > 0; --i) free_.push_back(static_cast<std::int32_t>(i - 1));
}

std::int32_t BlockAllocator::allocate() {
  if (free_.empty()) return -1;
  const std::int32_t block = free_.back();
  free_.pop_back();
  holders_[static_cast<std::size_t>(block)] = 1;
  return block;
}

void BlockAllocator::retain(std::int32_t block) {
  require_held(block, "retain");
  ++holders_[static_cast<std::size_t>(block)];
}

void BlockAllocator::release(std::int32_t block) {
  require_held(block, "release");
  if (--holders_[static_cast<std::size_t>(block)] == 0) free_.push_back(block);
}

void BlockAllocator::require_held(std::int32_t block, const char* call) const {
  if (block >= 0 && block < total() && holders_[static_cast<std::size_t>(block)] > 0) return;
  fail(ErrorCode::usage, std::string(call) + " of KV block " + std::to_string(block), "a block in use");
}

}  // namespace sluice::engine
