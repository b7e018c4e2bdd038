// SPDX-License-Identifier: MIT
// The logit lens as a picture: a row for each layer, the last on top, a column for each token;
// every cell says its likeliest token, the bluer the surer. The tokens stand below.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace clearhead {

struct LensFigureCell {
  std::string text;
  double probability = 0.0;
  bool target = false;  // it is the token that is followed: a red frame
};

struct LensFigure {
  std::string title;
  std::vector<std::string> tokens;                 // [T]
  std::vector<std::string> rows;                   // their names, from the bottom
  std::vector<std::vector<LensFigureCell>> cells;  // [rows][T]
};

// Columns that a page has room for: of longer prompts the last ones are drawn.
inline constexpr std::size_t kLensColumns = 24;

// Writes .svg, .pdf or .png.
void DrawLensFigure(const LensFigure& figure, const std::filesystem::path& out);

}  // namespace clearhead
