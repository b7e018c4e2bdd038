// SPDX-License-Identifier: MIT
#include "figures/line_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "figures/png_pixels.h"
#include "figures/running_mean.h"
#include "figures/theme.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

std::uint32_t Rgb(Color color) {
  const auto byte = [](double part) { return static_cast<std::uint32_t>(std::lround(part * 255)); };
  return byte(color.red) << 16 | byte(color.green) << 8 | byte(color.blue);
}

std::ptrdiff_t CountColor(const Pixels& pixels, Color color) {
  return std::count(pixels.rgb.begin(), pixels.rgb.end(), Rgb(color));
}

Series Wave(std::size_t count, std::string name) {
  Series series{.name = std::move(name)};
  for (std::size_t i = 0; i < count; ++i) {
    const double t = static_cast<double>(i);
    series.x.push_back(t);
    // Noise enough that neighbours never lie on one line.
    series.y.push_back(3 + 8 / (1 + t / 100) + 0.5 * std::sin(t * 12.9898) * std::sin(t * 78.233));
  }
  return series;
}

LineChart FullChart() {
  LineChart chart{
      .title = "Training", .x_label = "step", .left_label = "loss", .right_label = "edges (%)"};
  chart.series = {Wave(3000, ""), Wave(3000, "loss"), Wave(20, "validation")};
  chart.series[0].faint = true;
  chart.series[1].y = RunningMean(chart.series[0].y, 50);
  chart.series[2].points_only = true;
  Series edges = Wave(3000, "edges");
  edges.axis = ChartAxis::kRight;
  chart.series.push_back(edges);
  chart.reference_lines = {{3.5, "target"}};
  chart.log_right = true;
  return chart;
}

TEST(LineChart, SameChartSameBytesInAllFormats) {
  const TemporaryFolder folder;
  for (const std::string type : {"svg", "pdf", "png"}) {
    DrawLineChart(FullChart(), folder / ("a." + type));
    DrawLineChart(FullChart(), folder / ("b." + type));
    EXPECT_EQ(ReadFile(folder / ("a." + type)), ReadFile(folder / ("b." + type))) << type;
  }
}

TEST(LineChart, LongSeriesStaySmallAndKeepTheirPeaks) {
  const TemporaryFolder folder;
  LineChart chart;
  chart.series = {Wave(200000, "loss")};
  chart.series[0].y[123456] = 40;  // a single spike
  DrawLineChart(chart, folder / "a.svg");
  EXPECT_LT(std::filesystem::file_size(folder / "a.svg"), 100'000u);
  DrawLineChart(chart, folder / "a.png");
  const Pixels pixels = ReadPng(folder / "a.png");
  // Ink in the upper half of the plot: the spike and nothing else (the start is at 11).
  std::ptrdiff_t above = 0;
  for (int y = pixels.height / 6; y < pixels.height / 2; ++y) {
    for (int x = pixels.width / 3; x < pixels.width; ++x) {
      above += pixels.At(x, y) == Rgb(theme::kSeries[0]);
    }
  }
  EXPECT_GT(above, 50);
}

TEST(LineChart, DrawsEachSeriesInItsColour) {
  const TemporaryFolder folder;
  DrawLineChart(FullChart(), folder / "a.png");
  const Pixels pixels = ReadPng(folder / "a.png");
  EXPECT_EQ(pixels.width, 840);
  EXPECT_EQ(pixels.height, 520);
  for (const std::size_t i : {0u, 1u, 2u}) {
    EXPECT_GT(CountColor(pixels, theme::kSeries[i]), 100) << i;
  }
  EXPECT_EQ(CountColor(pixels, theme::kSeries[3]), 0);  // the faint series took no colour
}

TEST(LineChart, SkipsWhatCannotBeShown) {
  const TemporaryFolder folder;
  LineChart dirty;
  dirty.series = {{.x = {0, 1, 2, 3, 4}, .y = {1, 2, kNaN, 2, 1}}};
  DrawLineChart(dirty, folder / "dirty.png");
  dirty.series[0].y[2] = 2;
  DrawLineChart(dirty, folder / "joined.png");
  // The line is interrupted: two of its four pieces are missing.
  EXPECT_LT(
      static_cast<double>(CountColor(ReadPng(folder / "dirty.png"), theme::kSeries[0])),
      0.8 * static_cast<double>(CountColor(ReadPng(folder / "joined.png"), theme::kSeries[0])));
  dirty.series[0].y = {1, 2, kInfinity, 2, 1};
  DrawLineChart(dirty, folder / "infinite.png");
  EXPECT_EQ(ReadFile(folder / "infinite.png"), ReadFile(folder / "dirty.png"));
  dirty.series[0].y = {1, 2, 5, 2, 1};
  dirty.series[0].x[2] = -kInfinity;
  DrawLineChart(dirty, folder / "x.png");
  EXPECT_EQ(ReadFile(folder / "x.png"), ReadFile(folder / "dirty.png"));
}

TEST(LineChart, SkipsZerosOnLogAxes) {
  const TemporaryFolder folder;
  LineChart a, b;
  a.log_left = b.log_left = a.log_x = b.log_x = true;
  a.series = {{.name = "a", .x = {0, 1, 10, 100, 1000}, .y = {5, 1, 10, 0, -3}}};
  b.series = {{.name = "a", .x = {1, 10}, .y = {1, 10}}};
  a.reference_lines = {{-1, "never"}};
  DrawLineChart(a, folder / "a.png");
  DrawLineChart(b, folder / "b.png");
  EXPECT_EQ(ReadFile(folder / "a.png"), ReadFile(folder / "b.png"));
}

TEST(LineChart, SinglePointsAreDots) {
  const TemporaryFolder folder;
  LineChart chart;
  chart.series = {{.x = {5}, .y = {5}}};
  DrawLineChart(chart, folder / "one.png");
  EXPECT_GT(CountColor(ReadPng(folder / "one.png"), theme::kSeries[0]), 8);
  chart.series = {{.x = {1, 2, 3, 4, 5}, .y = {1, kNaN, 2, kNaN, 3}}};
  DrawLineChart(chart, folder / "three.png");
  EXPECT_GT(CountColor(ReadPng(folder / "three.png"), theme::kSeries[0]), 20);
}

TEST(LineChart, AwkwardChartsAreDrawn) {
  const TemporaryFolder folder;
  std::vector<LineChart> charts(9);
  charts[1].series = {{.name = "empty"}};
  charts[2].series = {{.name = "constant", .x = {1, 2, 3}, .y = {2, 2, 2}}};
  charts[3].series = {{.name = "nan", .x = {kNaN}, .y = {kNaN}}};
  charts[4].series = {{.name = "huge", .x = {1, 2}, .y = {-1e308, 1e308}}};
  charts[5].series = {{.name = "zero", .x = {0, 0}, .y = {0, 0}, .axis = ChartAxis::kRight}};
  charts[6].reference_lines = {{1, "target"}, {kNaN, "no"}, {2, "", ChartAxis::kRight}};
  charts[7].series.assign(40, {.name = "a name of some length \xff", .x = {1, 2}, .y = {1, 2}});
  charts[8].width = charts[8].height = 20;
  charts[8].title = charts[8].x_label = charts[8].left_label = "too small for its labels";
  charts[8].series = {Wave(7, "w")};
  for (std::size_t i = 0; i < charts.size(); ++i) {
    for (const bool logarithmic : {false, true}) {
      charts[i].log_x = charts[i].log_left = charts[i].log_right = logarithmic;
      for (const char* name : {"a.png", "a.svg", "a.pdf"}) {
        EXPECT_NO_THROW(DrawLineChart(charts[i], folder / name)) << i << " " << name;
      }
      EXPECT_EQ(ReadPng(folder / "a.png").At(0, 0), 0xffffffu);
    }
  }
}

TEST(LineChart, RefusesBadPathsAndUnevenSeries) {
  const TemporaryFolder folder;
  EXPECT_THROW(DrawLineChart(FullChart(), folder / "a.gif"), Error);
  EXPECT_THROW(DrawLineChart(FullChart(), folder / "missing/a.svg"), Error);
  LineChart uneven;
  uneven.series = {{.x = {1, 2}, .y = {1}}};
  EXPECT_THROW(DrawLineChart(uneven, folder / "a.svg"), std::logic_error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace clearhead
