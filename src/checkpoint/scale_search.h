// Searches block scales for values that none may have: NaN, negative numbers and numbers that are too large.
//
// Called by ScaleChecks for every scale of a checkpoint while it is loaded, from many threads. Pure functions on the
// caller's memory, at the speed of reading it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::ckpt {

// Index of the first NaN or negative number among `count` codes, or -1. Zero, of either sign, is the scale of a block
// of zeros.
std::int64_t first_bad_e4m3(const std::byte* codes, std::int64_t count);

// Index of the first code above `most`, or -1. NaN is the largest code.
std::int64_t first_bad_e8m0(const std::byte* codes, std::int64_t count, std::uint8_t most);

}  // namespace sluice::ckpt
