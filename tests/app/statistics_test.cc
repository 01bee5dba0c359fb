#include "app/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice::app {
namespace {

TEST(Statistics, ANanStaysTheWorstWhateverFollows) {
  double worst = 0;
  for (const double v : {0.5, std::nan(""), 0.25, 2.0}) worst = worse(worst, v);
  EXPECT_TRUE(std::isnan(worst));
  EXPECT_EQ(worse(worse(0.5, 2.0), 1.0), 2.0);
}

TEST(Statistics, ThePercentileCountsNanAsTheLargest) {
  std::vector<double> values(200, 1.0);
  values[0] = 7.0;
  values[1] = 5.0;
  EXPECT_EQ(percentile99(values), 1.0);  // 198 of 200 are 99 %
  values[2] = std::nan("");
  EXPECT_EQ(percentile99(values), 5.0);
  values.assign(3, std::nan(""));
  EXPECT_TRUE(std::isnan(percentile99(values)));
  EXPECT_EQ(percentile99({}), 0.0);
}

}  // namespace
}  // namespace sluice::app
