// The picture of a bench: how close each token count comes to the floor. Pure function of the result.
#pragma once

#include <string>

#include "app/bench_moe.h"
#include "app/bench_moe_gpu.h"

namespace sluice::cli {

// A bar a token count, from 0 to 100 % of the floor; above it the time.
std::string bench_svg(const app::MoeBenchResult& result);

// A roofline: operations a second over operations a byte, with the points of the baseline as rings.
std::string roofline_svg(const app::GpuMoeResult& result);

}  // namespace sluice::cli
