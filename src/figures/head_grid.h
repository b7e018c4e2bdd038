// SPDX-License-Identifier: MIT
// Many small attention maps on one page: a rounded panel per model, a grid of square maps in each,
// every map with its head's label in the empty corner of the future.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "figures/canvas.h"
#include "figures/map_drawing.h"
#include "heads/head_map.h"

namespace clearhead {

struct GridPanel {
  std::string title;
  std::vector<HeadMap> maps;        // in reading order
  std::vector<std::string> tokens;  // [T], for ticks
};

struct HeadGrid {
  std::vector<GridPanel> panels;
  int columns = 0;     // 0: chosen for a balanced page
  double gamma = 1;    // below 1, faint weights show
  bool ticks = false;  // tokens beside and below the maps; at most kMaxTicks of them
  bool color_bar = false;
  std::optional<GridMark> mark;  // a red square around one cell of every map
};

inline constexpr std::int64_t kMaxTicks = 32;

// Everything about places, in points; whole numbers, so that maps start on whole pixels. It depends
// on the numbers of maps, not on the weights: commands ask it how far to reduce the maps.
struct GridLayout {
  int columns = 0;
  double side = 0;                           // of a map
  std::int64_t max_cells = 0;                // cells a side that a drawing of this size can show
  double width = 0, height = 0;              // of the page
  std::vector<Rectangle> panels;             // in order
  std::vector<std::vector<Rectangle>> maps;  // [panel][map]
  bool labels_inside = true;  // false: above the maps, for sequences too short to have a corner
  double tick_size = 0;
  Rectangle color_bar{};
};

// Columns for panels of these numbers of maps: near-square page, few empty places.
int BalancedColumns(const std::vector<std::size_t>& maps_per_panel);

// `maps_per_panel` and the longest `length` of the panels' sequences; `grid` for columns, ticks and
// the colour bar (its panels' tokens if there are ticks).
GridLayout LayoutGrid(const HeadGrid& grid, const std::vector<std::size_t>& maps_per_panel,
                      std::int64_t length);

// Pixels per point of PNG files.
inline constexpr double kGridPngScale = 3;

void DrawHeadGrid(const HeadGrid& grid, const std::filesystem::path& out);

}  // namespace clearhead
