// SPDX-License-Identifier: MIT
// Line charts: training curves, a loss and an edge percentage over the steps of sparsifying.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace clearhead {

enum class ChartAxis { kLeft, kRight };

// Points in the order given. Those that cannot be shown (NaN, infinite, not positive on a
// logarithmic axis) are left out and interrupt the line; a point with no neighbour to be joined to
// is a dot.
struct Series {
  std::string name;  // in the legend; empty: not listed there
  std::vector<double> x, y;
  ChartAxis axis = ChartAxis::kLeft;
  bool points_only = false;
  // Drawn pale, in the colour of the next series that is not faint: raw values behind their mean.
  bool faint = false;
};

// A horizontal line, such as a target.
struct ReferenceLine {
  double value;
  std::string label;
  ChartAxis axis = ChartAxis::kLeft;
};

struct LineChart {
  std::string title, x_label, left_label, right_label;  // empty ones take no room
  std::vector<Series> series;
  std::vector<ReferenceLine> reference_lines;
  bool log_x = false, log_left = false, log_right = false;
  double width = 420, height = 260;  // points
};

// Writes the chart as .svg, .pdf or .png. A series of any length costs at most a few points for
// each point of the chart's width: its first, lowest, highest and last there.
void DrawLineChart(const LineChart& chart, const std::filesystem::path& out);

}  // namespace clearhead
