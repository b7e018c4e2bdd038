// SPDX-License-Identifier: MIT
// Faithfulness over the size of the circuit, one line per model, random sets of equal size pale
// behind it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace clearhead {

struct CircuitCurveSeries {
  std::string name;
  std::vector<double> sizes, faithfulness;
  std::vector<double> random_sizes, random_faithfulness;
};

struct CircuitCurveFigure {
  std::string title;
  std::string element;  // "heads", "edges"
  std::vector<CircuitCurveSeries> series;
  bool log_sizes = false;  // the empty circuit is then left out
};

// Writes .svg, .pdf or .png.
void DrawCircuitCurve(const CircuitCurveFigure& figure, const std::filesystem::path& out);

}  // namespace clearhead
