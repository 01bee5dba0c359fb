// Division and multiples of sizes, rounded up. Pure; arguments are not negative and divisors are at least 1.
#pragma once

#include <cstdint>

namespace sluice {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t rounded_up(std::int64_t n, std::int64_t unit) { return ceil_div(n, unit) * unit; }

}  // namespace sluice
