// SPDX-License-Identifier: MIT
#include "figures/map_drawing.h"

#include <algorithm>
#include <vector>

#include "figures/color_scale.h"
#include "figures/theme.h"

namespace clearhead {
namespace {

std::vector<std::uint8_t> MapPixels(const HeadMap& map, double gamma) {
  std::vector<std::uint8_t> rgb;
  rgb.reserve(map.weights.size() * 3);
  for (std::int64_t y = 0; y < map.cells; ++y) {
    for (std::int64_t x = 0; x < map.cells; ++x) {
      // The future is paper, whatever the numbers there.
      const float weight = x <= y ? map.weights[static_cast<std::size_t>(y * map.cells + x)] : 0.0f;
      const Rgb color = WeightColor(weight, gamma);
      rgb.insert(rgb.end(), color.begin(), color.end());
    }
  }
  return rgb;
}

// Outside the map: a line on its edge would cover the first column, where the sinks are.
void DrawFrame(Canvas* canvas, const Rectangle& area) {
  constexpr double kLine = 0.5;
  canvas->StrokeRectangle(
      {area.x - kLine / 2, area.y - kLine / 2, area.width + kLine, area.height + kLine},
      {theme::kMapLine, kLine});
}

}  // namespace

void DrawMap(Canvas* canvas, const HeadMap& map, const Rectangle& area, double gamma) {
  const auto cells = static_cast<int>(map.cells);
  canvas->Image(area, cells, cells, MapPixels(map, gamma));
  DrawFrame(canvas, area);
}

Rectangle MarkArea(const HeadMap& map, const Rectangle& area, const GridMark& mark) {
  constexpr double kLeast = 4;
  const double unit = area.width / static_cast<double>(map.length);
  const double size = std::max(unit, kLeast);
  const double x = area.x + (static_cast<double>(mark.key) + 0.5) * unit;
  const double y = area.y + (static_cast<double>(mark.query) + 0.5) * unit;
  return {x - size / 2, y - size / 2, size, size};
}

void DrawMark(Canvas* canvas, const HeadMap& map, const Rectangle& area, const GridMark& mark) {
  canvas->StrokeRectangle(MarkArea(map, area, mark), {theme::kMark, 0.9});
}

}  // namespace clearhead
