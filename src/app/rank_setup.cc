#include "app/rank_setup.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace sluice::app {
namespace {

// FNV-1a, 64 bits.
class Digest {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    value_ *= 0x100000001b3ull;  // a border, so that "ab" "c" is not "a" "bc"
  }
  void add(std::uint64_t number) { add(std::to_string(number)); }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ull;
};

// The same number for all ranks of a host.
std::uint64_t host_digest() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  Digest digest;
  digest.add(std::string_view(name.data()));
  return digest.value();
}

// The same number for all ranks of a host that may use the same processors.
std::uint64_t processors_digest() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  Digest digest;
  digest.add(host_digest());
  digest.add(std::string_view(reinterpret_cast<const char*>(&set), sizeof(set)));
  return digest.value();
}

// [ranks, count] what every rank named.
template <class T>
std::vector<T> from_all(Group& world, std::span<const T> mine) {
  const auto size = static_cast<std::size_t>(world.size());
  const auto bytes = static_cast<std::int64_t>(mine.size_bytes());
  std::vector<std::int64_t> offsets(size), counts(size, bytes);
  for (std::size_t r = 0; r < size; ++r) offsets[r] = static_cast<std::int64_t>(r) * bytes;
  std::vector<T> all(size * mine.size());
  world.all_gather(mine.data(), all.data(), {offsets.data(), counts.data()});
  return all;
}

}  // namespace

Sharing find_sharing(Group& world) {
  const std::array<std::uint64_t, 2> mine = {host_digest(), processors_digest()};
  // Rank 0 comes here when it has read its user's input, which may take any time.
  const double limit = world.rank() == 0 ? 0 : world.set_timeout(std::numeric_limits<double>::infinity());
  const std::vector<std::uint64_t> all = from_all<std::uint64_t>(world, mine);
  if (world.rank() != 0) world.set_timeout(limit);
  Sharing sharing{0, 0};
  for (std::size_t r = 0; r < all.size(); r += 2) {
    sharing.memory += all[r] == mine[0] ? 1 : 0;
    sharing.processors += all[r + 1] == mine[1] ? 1 : 0;
  }
  return sharing;
}

CommonIsa common_isa(Group& world, cpu::Isa mine) {
  const std::vector<cpu::Isa> all = from_all<cpu::Isa>(world, std::span(&mine, 1));
  const auto [least, widest] = std::minmax_element(all.begin(), all.end());
  if (*least == *widest) return {mine, ""};
  return {*least,
          fmt::format("instruction set {} on all ranks, the most that rank {} may use; rank {} could use {}",
                      cpu::isa_name(*least), least - all.begin(), widest - all.begin(), cpu::isa_name(*widest))};
}

std::int64_t least_of(Group& world, std::int64_t value) {
  const std::vector<std::int64_t> all = from_all<std::int64_t>(world, std::span(&value, 1));
  return *std::min_element(all.begin(), all.end());
}

std::string header_digest(const ckpt::Checkpoint& checkpoint) {
  Digest digest;
  for (const ckpt::TensorEntry* tensor : checkpoint.tensors()) {
    digest.add(tensor->name);
    digest.add(static_cast<std::uint64_t>(tensor->dtype));
    for (const std::int64_t extent : tensor->shape) digest.add(static_cast<std::uint64_t>(extent));
    digest.add(tensor->offset_bytes);
  }
  return fmt::format("{:016x}", digest.value());
}

}  // namespace sluice::app
