#include "app/statistics.h"

#include <algorithm>
#include <cmath>

namespace sluice::app {

double worse(double a, double b) { return std::isnan(a) || a >= b ? a : b; }

double percentile99(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end(), [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; });
  return values[(values.size() * 99 + 99) / 100 - 1];
}

}  // namespace sluice::app
