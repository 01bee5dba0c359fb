// How many tokens the KV cache holds when nobody says: what the requests in work can need, within the memory that is
// free once the weights are in. Called by load_model. Pure, but for free_memory_bytes, which asks the system.
//
// Memory of the cache is taken page by page as it's written, so a capacity that is never used costs nothing.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::app {

inline constexpr double kDefaultKvFraction = 0.5;
inline constexpr std::int64_t kMostDefaultKvBytes = std::int64_t{8} << 30;

struct KvDemand {
  std::int64_t sequences = 0;        // requests in work at the same time
  std::int64_t context = 0;          // tokens of the longest one
  std::int64_t block_tokens = 16;    // each takes whole blocks
  std::int64_t bytes_per_token = 0;  // of all layers
  std::int64_t free_bytes = 0;       // 0 = not known
  double fraction = 0;               // of the free bytes, asked for; 0 = kDefaultKvFraction and kMostDefaultKvBytes
};

struct KvCapacity {
  std::int64_t tokens = 0;  // whole blocks, at least one
  std::string reason;       // "16 whole contexts", "50 % of 3.1 GB free", ...
};

// Where the memory is not known, and where nobody asked and less would not do, there is room for one context.
KvCapacity choose_kv_capacity(const KvDemand& demand);

// What this process could still take: MemAvailable, or what its control group leaves, whichever is less. 0 when the
// system does not say.
std::int64_t free_memory_bytes();

}  // namespace sluice::app
