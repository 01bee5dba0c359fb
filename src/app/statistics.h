// Summaries of measured differences in which a NaN is never lost. Pure functions, called by commands that compare.
#pragma once

#include <vector>

namespace sluice::app {

// The larger one; NaN is worse than everything and stays.
double worse(double a, double b);

// Smallest value that at least 99 % of the values do not exceed; 0 of none. NaN counts as the largest.
double percentile99(std::vector<double> values);

}  // namespace sluice::app
