#include "checkpoint/page_drops.h"

#include <algorithm>
#include <utility>

#include "checkpoint/mapped_file.h"

namespace sluice::ckpt {
namespace {

constexpr std::size_t kGapBytes = 256u << 10;

const std::byte* end_of(ByteRange range) { return range.data() + range.size(); }

bool contains(ByteRange outer, ByteRange inner) {
  return inner.data() >= outer.data() && end_of(inner) <= end_of(outer);
}

void drop(std::vector<ByteRange> ranges, const std::vector<ByteRange>& files) {
  for (const ByteRange range : joined_ranges(std::move(ranges), files, kGapBytes)) drop_pages(range);
}

// Parts that several threads can drop side by side.
std::vector<ByteRange> parts_of(const std::vector<ByteRange>& ranges) {
  constexpr std::size_t kPartBytes = 8u << 20;
  std::vector<ByteRange> parts;
  for (const ByteRange range : ranges) {
    for (std::size_t at = 0; at < range.size(); at += kPartBytes) {
      parts.push_back(range.subspan(at, std::min(kPartBytes, range.size() - at)));
    }
  }
  return parts;
}

}  // namespace

std::vector<ByteRange> joined_ranges(std::vector<ByteRange> ranges, const std::vector<ByteRange>& files,
                                     std::size_t gap_bytes) {
  std::sort(ranges.begin(), ranges.end(), [](ByteRange a, ByteRange b) { return a.data() < b.data(); });
  std::vector<ByteRange> out;
  for (const ByteRange range : ranges) {
    if (!out.empty() && range.data() <= end_of(out.back()) + gap_bytes) {
      const ByteRange both{out.back().data(), std::max(end_of(out.back()), end_of(range))};
      const bool one_file =
          std::any_of(files.begin(), files.end(), [&](ByteRange file) { return contains(file, both); });
      if (one_file) {
        out.back() = both;
        continue;
      }
    }
    out.push_back(range);
  }
  return out;
}

void PageDrops::add(ByteRange range) {
  if (std::none_of(files_.begin(), files_.end(), [&](ByteRange file) { return contains(file, range); })) return;
  std::vector<ByteRange> full;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_.push_back(range);
    pending_bytes_ += range.size();
    if (pending_bytes_ < kMostPendingBytes) return;
    full = std::exchange(pending_, {});
    pending_bytes_ = 0;
  }
  drop(std::move(full), files_);
}

void PageDrops::flush(ThreadPool* pool) {
  std::vector<ByteRange> rest;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    rest = std::exchange(pending_, {});
    pending_bytes_ = 0;
  }
  if (pool == nullptr) return drop(std::move(rest), files_);
  const std::vector<ByteRange> parts = parts_of(joined_ranges(std::move(rest), files_, kGapBytes));
  pool->parallel_for(static_cast<std::int64_t>(parts.size()), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) drop_pages(parts[static_cast<std::size_t>(i)]);
  });
}

}  // namespace sluice::ckpt
