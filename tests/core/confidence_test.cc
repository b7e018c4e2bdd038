// SPDX-License-Identifier: MIT
// Student's quantile against printed tables, and the interval against its definition.
#include "core/confidence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/random.h"

namespace clearhead {
namespace {

TEST(Confidence, QuantileIsThatOfTheTables) {
  const std::pair<std::int64_t, double> table[] = {
      {1, 12.7062}, {2, 4.3027},  {3, 3.1824},  {4, 2.7764},   {5, 2.5706},   {9, 2.2622},
      {10, 2.2281}, {29, 2.0452}, {30, 2.0423}, {100, 1.9840}, {120, 1.9799}, {1000, 1.9623}};
  for (const auto& [n, t] : table) EXPECT_NEAR(StudentQuantile95(n), t, 5.1e-5) << n;
  EXPECT_NEAR(StudentQuantile95(std::int64_t{1} << 40), 1.95996, 3e-4);
}

TEST(Confidence, EqualWeightsGiveThePairedInterval) {
  // Mean 2, sample deviation 1: half width t(2) / sqrt(3).
  const WeightedMean result =
      MeanWithInterval(std::vector<double>{1, 2, 3}, std::vector<double>{7, 7, 7});
  EXPECT_DOUBLE_EQ(result.mean, 2.0);
  ASSERT_TRUE(result.interval);
  EXPECT_NEAR(result.interval->high, 2.0 + 4.30265 / std::sqrt(3.0), 1e-5);
  EXPECT_NEAR(result.interval->low, 2.0 - 4.30265 / std::sqrt(3.0), 1e-5);
}

TEST(Confidence, WeightsCount) {
  // Weights 3/4, 1/4 on 0 and 4: mean 1, squares (3/4)^2 + (3/4)^2, times n/(n-1) = 2.
  const WeightedMean result =
      MeanWithInterval(std::vector<double>{0, 4}, std::vector<double>{3, 1});
  EXPECT_DOUBLE_EQ(result.mean, 1.0);
  ASSERT_TRUE(result.interval);
  EXPECT_NEAR(result.interval->high - 1.0, 12.7062 * 1.5, 1e-3);
}

TEST(Confidence, OneValueHasNoInterval) {
  const WeightedMean result = MeanWithInterval(std::vector<double>{5}, std::vector<double>{2});
  EXPECT_EQ(result.mean, 5.0);
  EXPECT_FALSE(result.interval);
}

// What the name promises: of 95 % of experiments the interval holds the truth. 4000 experiments, so
// the share of misses is within 5 % -+ 1.4 % (four deviations).
TEST(Confidence, HoldsTheTruthNineteenTimesOfTwenty) {
  RandomStream random(5);
  for (const std::size_t count : {2u, 3u, 7u, 40u}) {
    int missed = 0;
    for (int experiment = 0; experiment < 4000; ++experiment) {
      std::vector<double> values, weights(count, 1.0);
      for (std::size_t i = 0; i < count; ++i) values.push_back(0.3 + 2.0 * random.Normal());
      const Interval interval = *MeanWithInterval(values, weights).interval;
      missed += interval.low > 0.3 || interval.high < 0.3;
    }
    EXPECT_NEAR(missed / 4000.0, 0.05, 0.014) << count;
  }
}

}  // namespace
}  // namespace clearhead
