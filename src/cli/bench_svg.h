// The picture of a bench: how close each token count comes to the floor. Pure function of the result.
#pragma once

#include <string>

#include "app/bench_moe.h"

namespace sluice::cli {

// A bar a token count, from 0 to 100 % of the floor; above it the time.
std::string bench_svg(const app::MoeBenchResult& result);

}  // namespace sluice::cli
