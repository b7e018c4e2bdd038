// SPDX-License-Identifier: MIT
#include "figures/chart_axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace clearhead {
namespace {

using testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<std::string> Labels(const AxisScale& scale, int wanted) {
  std::vector<std::string> labels;
  for (const Tick& tick : MakeTicks(scale, wanted)) {
    if (!tick.label.empty()) labels.push_back(tick.label);
  }
  return labels;
}

AxisScale ScaleOf(const std::vector<double>& values, bool logarithmic, double margin = 0) {
  AxisRange range(logarithmic);
  for (const double value : values) range.Include(value);
  return range.Scale(margin);
}

TEST(ChartAxis, LinearLabels) {
  EXPECT_THAT(Labels({0, 1}, 5), ElementsAre("0.0", "0.2", "0.4", "0.6", "0.8", "1.0"));
  EXPECT_THAT(Labels({-3, 3}, 6), ElementsAre("−3", "−2", "−1", "0", "1", "2", "3"));
  EXPECT_THAT(Labels({3.02, 3.17}, 3), ElementsAre("3.05", "3.10", "3.15"));
  EXPECT_THAT(Labels({0, 10000}, 5), ElementsAre("0", "2k", "4k", "6k", "8k", "10k"));
  EXPECT_THAT(Labels({0, 9000}, 4), ElementsAre("0", "2000", "4000", "6000", "8000"));
  EXPECT_THAT(Labels({0, 2.1e6}, 4), ElementsAre("0.0", "0.5M", "1.0M", "1.5M", "2.0M"));
  EXPECT_THAT(Labels({0, 1e-5}, 2), ElementsAre("0", "5e−6", "1.0e−5"));
  EXPECT_THAT(Labels({0, 3e12}, 3), ElementsAre("0", "1e12", "2e12", "3e12"));
}

TEST(ChartAxis, LogLabels) {
  EXPECT_THAT(Labels({0.1, 100, true}, 6), ElementsAre("0.1", "1", "10", "100"));
  EXPECT_THAT(Labels({2, 60, true}, 6), ElementsAre("2", "5", "10", "20", "50"));
  EXPECT_THAT(Labels({3.1, 3.9, true}, 4), ElementsAre("3.2", "3.4", "3.6", "3.8"));
  EXPECT_THAT(Labels({1e-6, 1e-3, true}, 6), ElementsAre("1e−6", "1e−5", "1e−4", "0.001"));
  EXPECT_THAT(Labels({2e4, 2e6, true}, 6),
              ElementsAre("20k", "50k", "100k", "200k", "500k", "1M", "2M"));
  EXPECT_LE(Labels({1e-200, 1e200, true}, 6).size(), 10u);
}

TEST(ChartAxis, TicksLieInsideAndAscend) {
  for (const bool logarithmic : {false, true}) {
    for (const double low : {1e-290, 3e-7, 0.77, 13.0, 1e9, 1e250}) {
      for (const double ratio : {1 + 1e-5, 1.01, 1.7, 23.0, 1e7, 1e40}) {
        for (const int wanted : {1, 2, 5, 9}) {
          const AxisScale scale{low, low * ratio, logarithmic};
          const std::vector<Tick> ticks = MakeTicks(scale, wanted);
          EXPECT_LE(static_cast<double>(ticks.size()), 9 * (1.5 * wanted + 2));
          for (std::size_t i = 0; i < ticks.size(); ++i) {
            EXPECT_GE(scale.Position(ticks[i].value), -1e-3) << low << " " << ratio;
            EXPECT_LE(scale.Position(ticks[i].value), 1 + 1e-3) << low << " " << ratio;
            if (i > 0) {
              EXPECT_LT(ticks[i - 1].value, ticks[i].value);
              EXPECT_TRUE(ticks[i].label.empty() || ticks[i - 1].label != ticks[i].label)
                  << ticks[i].label << " at " << low << " " << ratio;
            }
          }
        }
      }
    }
  }
}

TEST(ChartAxis, ScaleHoldsTheValuesThatCanBeShown) {
  const double nan = std::nan("");
  AxisScale scale = ScaleOf({nan, 2, kInfinity, -4, -kInfinity, 1e305}, false);
  EXPECT_EQ(scale.low, -4);
  EXPECT_EQ(scale.high, 2);
  EXPECT_DOUBLE_EQ(scale.Position(-1), 0.5);
  scale = ScaleOf({0, -1, 0.01, 100}, true);
  EXPECT_EQ(scale.low, 0.01);
  EXPECT_EQ(scale.high, 100);
  EXPECT_DOUBLE_EQ(scale.Position(1), 0.5);
  scale = ScaleOf({0, 10}, false, 0.1);
  EXPECT_DOUBLE_EQ(scale.low, -1);
  EXPECT_DOUBLE_EQ(scale.high, 11);
}

TEST(ChartAxis, ScaleOfNothingAndOfOneValue) {
  for (const bool logarithmic : {false, true}) {
    for (const std::vector<double>& values : std::vector<std::vector<double>>{
             {}, {0}, {-5}, {7}, {7, 7}, {5e-324}, {1e299}, {1e9, 1e9 + 1e-7}}) {
      const AxisScale scale = ScaleOf(values, logarithmic, 0.04);
      ASSERT_LT(scale.low, scale.high);
      EXPECT_GE(MakeTicks(scale, 4).size(), 2u);
      if (!values.empty() && CanShow(values[0], logarithmic)) {
        EXPECT_GT(scale.Position(values[0]), 0);
        EXPECT_LT(scale.Position(values[0]), 1);
      }
    }
  }
}

}  // namespace
}  // namespace clearhead
