#include "engine/rank_channel.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/error.h"

namespace sluice::engine {
namespace {

// The length and the beginning of a message travel together, so that a step of a few dozen sequences takes one
// broadcast.
constexpr std::size_t kFrameBytes = 8192;
constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 32;
constexpr int kRoot = 0;

// To the root of `group`.
std::vector<std::vector<std::byte>> gather_to_root(Group& group, const std::vector<std::byte>& mine) {
  const auto size = static_cast<std::size_t>(group.size());
  const auto length = std::ssize(mine);
  std::vector<std::int64_t> lengths(size), offsets(size), eights(size, sizeof(std::int64_t)), steps(size);
  for (std::size_t r = 0; r < size; ++r) steps[r] = static_cast<std::int64_t>(r * sizeof(std::int64_t));
  group.all_gather(&length, lengths.data(), {steps.data(), eights.data()});

  const bool root = group.rank() == kRoot;
  std::int64_t total = 0;
  std::vector<std::int64_t> send_offsets(size), send_counts(size), counts(size);
  for (std::size_t r = 0; r < size; ++r) {
    offsets[r] = total;
    counts[r] = root ? lengths[r] : 0;
    total += counts[r];
    send_offsets[r] = r == kRoot ? 0 : length;
    send_counts[r] = r == kRoot ? length : 0;
  }
  std::vector<std::byte> all(static_cast<std::size_t>(total));
  group.all_to_all(
      {mine.data(), {send_offsets.data(), send_counts.data()}, all.data(), {offsets.data(), counts.data()}});
  std::vector<std::vector<std::byte>> parts(size);
  for (std::size_t r = 0; root && r < size; ++r) {
    parts[r].assign(all.begin() + offsets[r], all.begin() + offsets[r] + counts[r]);
  }
  return parts;
}

}  // namespace

RankChannel::RankChannel(const EngineRanks& ranks) : ranks_(ranks), frame_(kFrameBytes) {
  if (ranks.plan.dp.count > 1) firsts_ = ranks.world->split(ranks.leads_group() ? 0 : 1);
}

void RankChannel::send(const StepMessage& message) {
  const std::vector<std::byte> bytes = to_bytes(message);
  const std::uint64_t length = bytes.size();
  const std::size_t first = std::min(bytes.size(), kFrameBytes - kLengthBytes);
  std::memcpy(frame_.data(), &length, kLengthBytes);
  std::copy_n(bytes.begin(), first, frame_.begin() + kLengthBytes);
  ranks_.world->broadcast(frame_.data(), kFrameBytes, kRoot);
  if (first == bytes.size()) return;
  std::vector<std::byte> rest(bytes.begin() + static_cast<std::ptrdiff_t>(first), bytes.end());
  ranks_.world->broadcast(rest.data(), rest.size(), kRoot);
}

StepMessage RankChannel::receive() {
  ranks_.world->broadcast(frame_.data(), kFrameBytes, kRoot);
  std::uint64_t length = 0;
  std::memcpy(&length, frame_.data(), kLengthBytes);
  if (length > kMostBytes) {
    fail(ErrorCode::bad_input, "message between ranks of " + std::to_string(length) + " bytes",
         "at most " + std::to_string(kMostBytes), "are all ranks of the same build?");
  }
  std::vector<std::byte> bytes(length);
  const std::size_t first = std::min(bytes.size(), kFrameBytes - kLengthBytes);
  std::copy_n(frame_.begin() + kLengthBytes, first, bytes.begin());
  if (first < bytes.size()) ranks_.world->broadcast(bytes.data() + first, bytes.size() - first, kRoot);
  return message_from_bytes(bytes);
}

std::vector<std::vector<std::byte>> RankChannel::gather(const std::vector<std::byte>& mine) {
  return gather_to_root(*firsts_, mine);
}

std::vector<std::vector<std::byte>> RankChannel::gather_all(const std::vector<std::byte>& mine) {
  return gather_to_root(*ranks_.world, mine);
}

}  // namespace sluice::engine
