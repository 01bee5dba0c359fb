#include "app/kv_capacity.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/rounding.h"

namespace sluice::app {
namespace {

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

// The first number of a small file; kUnknown when there is none, or "max".
std::int64_t read_number(const char* path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? value : kUnknown;
}

std::int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kib = 0;
    if (words >> name >> kib && name == "MemAvailable:") return kib * 1024;
  }
  return kUnknown;
}

// Files in the page cache count as used there, though they give way; so this errs on the low side.
std::int64_t control_group_bytes() {
  const std::int64_t limit = read_number("/sys/fs/cgroup/memory.max");
  const std::int64_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit == kUnknown || used == kUnknown) return kUnknown;
  return std::max<std::int64_t>(limit - used, 0);
}

}  // namespace

KvCapacity choose_kv_capacity(const KvDemand& d) {
  const std::int64_t one = rounded_up(d.context, d.block_tokens);
  const std::int64_t bytes = std::max<std::int64_t>(d.bytes_per_token, 1);
  if (d.free_bytes <= 0) return {one, "one context; free memory is not known"};
  const double fraction = d.fraction > 0 ? d.fraction : kDefaultKvFraction;
  const auto within = static_cast<std::int64_t>(fraction * static_cast<double>(d.free_bytes)) / bytes;
  const std::int64_t capped = d.fraction > 0 ? within : std::min(within, std::max(one, kMostDefaultKvBytes / bytes));
  const std::int64_t wanted = one * d.sequences;
  if (wanted <= capped) return {wanted, fmt::format("{} whole contexts", d.sequences)};
  const std::int64_t tokens = std::max(capped / d.block_tokens, std::int64_t{1}) * d.block_tokens;
  if (capped < within) return {tokens, "the most without --mem-fraction-static or --max-total-tokens"};
  return {tokens, fmt::format("{:.3g} % of {:.1f} GB free", fraction * 100, static_cast<double>(d.free_bytes) * 1e-9)};
}

std::int64_t free_memory_bytes() {
  const std::int64_t bytes = std::min(available_bytes(), control_group_bytes());
  return bytes == kUnknown ? 0 : bytes;
}

}  // namespace sluice::app
