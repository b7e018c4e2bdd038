// SPDX-License-Identifier: MIT
// The head x head correlation matrix in clustered order, one section per model.
#pragma once

#include <filesystem>
#include <vector>

#include "figures/canvas.h"
#include "heads/correlation.h"

namespace clearhead {

struct CorrelationPage {
  double width = 0, height = 0;
  double cell = 0;                  // side of one correlation, points
  std::vector<Rectangle> matrices;  // one per section
};
CorrelationPage LayoutCorrelations(const std::vector<CorrelationMatrix>& matrices);

inline constexpr double kCorrelationPngScale = 3;
// Where no correlation exists.
inline constexpr Color kUndefinedCorrelation = Color::Hex(0xd4d4d4);

void DrawCorrelations(const std::vector<CorrelationMatrix>& matrices,
                      const std::filesystem::path& out);

}  // namespace clearhead
