// SPDX-License-Identifier: MIT
#include "figures/circuit_curve.h"

#include "figures/line_chart.h"

namespace clearhead {

void DrawCircuitCurve(const CircuitCurveFigure& figure, const std::filesystem::path& out) {
  LineChart chart{.title = figure.title,
                  .x_label = figure.element + " in the circuit",
                  .left_label = "faithfulness",
                  .reference_lines = {{0.9, "90 %"}},
                  .log_x = figure.log_sizes};
  for (const CircuitCurveSeries& series : figure.series) {
    chart.series.push_back(
        {.name = "", .x = series.random_sizes, .y = series.random_faithfulness, .faint = true});
    chart.series.push_back({.name = series.name, .x = series.sizes, .y = series.faithfulness});
  }
  DrawLineChart(chart, out);
}

}  // namespace clearhead
