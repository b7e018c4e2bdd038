// SPDX-License-Identifier: MIT
// Scatter-plot matrices of heads: cell (x, y) plots the weights of head x against those of head y,
// histograms stand on the diagonal, one section per model.
#pragma once

#include <filesystem>
#include <vector>

#include "figures/canvas.h"
#include "heads/correlation.h"

namespace clearhead {

// Places of one section, in points.
struct ScatterLayout {
  double side = 0;  // of a cell
  Rectangle frame;  // around all cells
  // Cell of row y, column x; rows run down in the order of the heads, so the diagonal falls.
  Rectangle Cell(std::size_t y, std::size_t x) const;
  // The part of a cell in which weights from 0 to the head's largest are plotted; above it stands
  // r.
  Rectangle Plot(std::size_t y, std::size_t x) const;
};

struct ScatterPage {
  double width = 0, height = 0;
  std::vector<ScatterLayout> sections;
};
ScatterPage LayoutScatter(const std::vector<ScatterSection>& sections);

inline constexpr double kScatterPngScale = 3;

void DrawScatterMatrix(const std::vector<ScatterSection>& sections,
                       const std::filesystem::path& out);

}  // namespace clearhead
