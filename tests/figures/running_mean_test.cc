// SPDX-License-Identifier: MIT
#include "figures/running_mean.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace clearhead {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

TEST(RunningMean, LooksBothWaysAndSkipsNaN) {
  const std::vector<double> means = RunningMean(std::vector<double>{4, 1, kNaN, 7, kInfinity}, 2);
  ASSERT_EQ(means.size(), 5u);
  EXPECT_DOUBLE_EQ(means[0], (4 + 1 * 0.5 + 7 * 0.125) / 1.625);
  EXPECT_DOUBLE_EQ(means[1], (4 * 0.5 + 1 + 7 * 0.25) / 1.75);
  EXPECT_DOUBLE_EQ(means[2], (4 * 0.25 + 1 * 0.5 + 7 * 0.5) / 1.25);
  EXPECT_DOUBLE_EQ(means[3], (4 * 0.125 + 1 * 0.25 + 7) / 1.375);
  EXPECT_DOUBLE_EQ(means[4], (4 * 0.0625 + 1 * 0.125 + 7 * 0.5) / 0.6875);
  EXPECT_THAT(RunningMean(std::vector<double>{3, 5}, 1), testing::ElementsAre(3, 5));
  EXPECT_TRUE(std::isnan(RunningMean(std::vector<double>{kNaN}, 9)[0]));
  EXPECT_TRUE(RunningMean({}, 9).empty());
}

}  // namespace
}  // namespace clearhead
