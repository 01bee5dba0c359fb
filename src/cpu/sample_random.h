// Counter-based random numbers: the value at (seed, step) is computed from these two alone, without a state. Pure
// function.
#pragma once

#include <cstdint>

namespace sluice::cpu {

struct PhiloxBlock {
  std::uint32_t word[4];
};

// Philox4x32 with 10 rounds ("Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011).
inline PhiloxBlock philox4x32(PhiloxBlock counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter.word[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.word[1] ^ key0, static_cast<std::uint32_t>(b),
                static_cast<std::uint32_t>(a >> 32) ^ counter.word[3] ^ key1, static_cast<std::uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// In [0, 1), a multiple of 2^-53.
inline double uniform_at(std::uint64_t seed, std::uint64_t step) {
  const PhiloxBlock counter{{static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32), 0, 0}};
  const PhiloxBlock r = philox4x32(counter, static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  const std::uint64_t bits = static_cast<std::uint64_t>(r.word[0]) << 32 | r.word[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace sluice::cpu
