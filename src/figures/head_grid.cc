// SPDX-License-Identifier: MIT
#include "figures/head_grid.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "figures/color_scale.h"
#include "figures/scene.h"
#include "figures/theme.h"

namespace clearhead {
namespace {

constexpr double kPageWidth = 504;  // a paper's text width, 7 inches
constexpr double kMinSide = 26, kMaxSide = 120;
constexpr double kEdge = 4;        // around the panels
constexpr double kPadding = 8;     // between a panel's border and its maps
constexpr double kTitleRoom = 16;  // from the top of the padding to the first row of maps
constexpr double kPanelGap = 7;
constexpr double kRadius = 7;
constexpr double kTickPitch = 6.5;  // least room for one token
constexpr double kTickGap = 2;
constexpr double kBarWidth = 96, kBarHeight = 6, kBarRoom = 26;
constexpr int kMaxBalanced = 16;
// Of reduced maps: half a point is the thinnest line that prints well.
constexpr double kCellsPerPoint = 2;

double Gap(double side) { return std::clamp(std::round(side * 0.1), 3.0, 8.0); }

double LabelSize(double side) { return std::clamp(side * 0.165, 4.5, 8.0); }

TextStyle TickStyle(double size) { return {.size = size, .color = theme::kInk}; }

double LongestTick(const HeadGrid& grid, double size) {
  const Canvas ruler(1, 1, "ruler.svg");  // never saved
  double longest = 0;
  for (const GridPanel& panel : grid.panels) {
    for (const std::string& token : panel.tokens) {
      longest = std::max(longest, ruler.Measure(TokenLabel(token), TickStyle(size)).width);
    }
  }
  return std::ceil(longest);
}

void DrawLabeledMap(Canvas* canvas, const HeadGrid& grid, const GridLayout& layout,
                    const HeadMap& map, const Rectangle& area) {
  DrawMap(canvas, map, area, grid.gamma);
  const double size = LabelSize(layout.side);
  TextStyle style{.size = size, .color = theme::kInk, .align_x = AlignX::kRight};
  if (layout.labels_inside) {
    style.align_y = AlignY::kTop;
    canvas->Text({area.right() - 0.25 * size, area.y + 0.1 * size}, ToText(map.head), style);
  } else {
    style.align_y = AlignY::kBottom;
    canvas->Text({area.right(), area.y}, ToText(map.head), style);
  }
  if (grid.mark) DrawMark(canvas, map, area, *grid.mark);
}

// Queries beside the first map of each row, keys below the last map of each column.
void DrawTicks(Canvas* canvas, const GridLayout& layout, const GridPanel& panel,
               const std::vector<Rectangle>& maps) {
  TextStyle style = TickStyle(layout.tick_size);
  const double unit = layout.side / static_cast<double>(panel.tokens.size());
  const auto columns = static_cast<std::size_t>(layout.columns);
  for (std::size_t m = 0; m < maps.size(); ++m) {
    const bool left = m % columns == 0, bottom = m + columns >= maps.size();
    for (std::size_t t = 0; t < panel.tokens.size(); ++t) {
      const std::string text = TokenLabel(panel.tokens[t]);
      const double at = (static_cast<double>(t) + 0.5) * unit;
      style.align_x = AlignX::kRight;
      style.align_y = AlignY::kMiddle;
      if (left) {
        style.degrees = 0;
        canvas->Text({maps[m].x - kTickGap, maps[m].y + at}, text, style);
      }
      if (bottom) {
        style.degrees = -90;
        canvas->Text({maps[m].x + at, maps[m].bottom() + kTickGap}, text, style);
      }
    }
  }
}

void DrawColorBar(Canvas* canvas, const Rectangle& bar, double gamma) {
  constexpr int kSteps = 96;
  std::vector<std::uint8_t> rgb;
  for (int i = 0; i < kSteps; ++i) {
    const Rgb color = WeightColor(static_cast<double>(i) / (kSteps - 1), gamma);
    rgb.insert(rgb.end(), color.begin(), color.end());
  }
  canvas->Image(bar, kSteps, 1, rgb);
  canvas->StrokeRectangle(bar, {theme::kMapLine, 0.5});
  TextStyle style{.size = 7, .color = theme::kInk, .align_y = AlignY::kTop};
  for (const auto& [share, text] : {std::pair{0.0, "0"}, {0.5, "0.5"}, {1.0, "1"}}) {
    style.align_x = AlignX::kCenter;
    canvas->Text({bar.x + share * bar.width, bar.bottom() + 1}, text, style);
  }
  style.align_x = AlignX::kRight;
  style.align_y = AlignY::kMiddle;
  canvas->Text({bar.x - 6, bar.y + bar.height / 2}, "attention weight", style);
}

void CheckGrid(const HeadGrid& grid) {
  Check(!grid.panels.empty(), "a grid needs a panel");
  for (const GridPanel& panel : grid.panels) {
    Check(!panel.maps.empty(), "a panel needs a map");
    for (const HeadMap& map : panel.maps) {
      Check(map.length == panel.maps[0].length, "the maps of a panel show one sequence");
      Check(!grid.mark || (grid.mark->query < map.length && grid.mark->key <= grid.mark->query),
            "the mark is on a causal pair of every map");
    }
    Check(!grid.ticks || static_cast<std::int64_t>(panel.tokens.size()) == panel.maps[0].length,
          "one tick per token");
  }
}

}  // namespace

int BalancedColumns(const std::vector<std::size_t>& maps_per_panel) {
  std::size_t most = 0;
  for (const std::size_t count : maps_per_panel) most = std::max(most, count);
  int best = 1;
  double best_cost = std::numeric_limits<double>::infinity();
  for (int columns = 1; columns <= std::min<int>(kMaxBalanced, static_cast<int>(most)); ++columns) {
    double rows = 0, maps = 0;
    for (const std::size_t count : maps_per_panel) {
      rows += std::ceil(static_cast<double>(count) / columns);
      maps += static_cast<double>(count);
    }
    // A page as wide as high, a title counting as half a row, and each empty place a flaw.
    const double shape =
        std::log((rows + 0.5 * static_cast<double>(maps_per_panel.size())) / columns);
    const double empty = (rows * columns - maps) / maps;
    const double cost = std::abs(shape) + empty;
    if (cost < best_cost) {
      best_cost = cost;
      best = columns;
    }
  }
  return best;
}

GridLayout LayoutGrid(const HeadGrid& grid, const std::vector<std::size_t>& maps_per_panel,
                      std::int64_t length) {
  GridLayout layout;
  layout.columns = grid.columns > 0 ? grid.columns : BalancedColumns(maps_per_panel);
  std::size_t most = 0;
  for (const std::size_t count : maps_per_panel) most = std::max(most, count);
  const int used = std::min<int>(layout.columns, static_cast<int>(most));

  // A map of one or two tokens has no empty corner: the label goes above.
  layout.labels_inside = length >= 3;
  double side = (kPageWidth - 2 * (kEdge + kPadding)) / (used + 0.1 * (used - 1));
  if (grid.ticks) {
    side = std::max(side, kTickPitch * static_cast<double>(length));
    side = std::min(side, std::max(kMaxSide, kTickPitch * static_cast<double>(length)));
    side = std::floor(std::max(kMinSide, side));
    layout.tick_size = std::clamp(side / static_cast<double>(length) * 0.8, 4.5, 7.0);
  } else {
    side = std::floor(std::clamp(side, kMinSide, kMaxSide));
  }
  layout.side = side;
  layout.max_cells = static_cast<std::int64_t>(side * kCellsPerPoint);
  const double gap = Gap(side);
  const double label_room = layout.labels_inside ? 0 : std::ceil(1.3 * LabelSize(side));
  const double tick_room = grid.ticks ? LongestTick(grid, layout.tick_size) + 2 * kTickGap : 0;

  const double panel_width = 2 * kPadding + tick_room + used * side + (used - 1) * gap;
  double y = kEdge;
  for (const std::size_t count : maps_per_panel) {
    const auto rows = static_cast<int>((count + static_cast<std::size_t>(layout.columns) - 1) /
                                       static_cast<std::size_t>(layout.columns));
    const double row_step = side + gap + label_room;
    const double first = y + kPadding + kTitleRoom + label_room;
    const double height =
        first - y + (rows - 1) * row_step + side + std::max(kPadding, tick_room + kTickGap);
    layout.panels.push_back({kEdge, y, panel_width, height});
    std::vector<Rectangle>& maps = layout.maps.emplace_back();
    for (std::size_t m = 0; m < count; ++m) {
      const std::size_t rows_above = m / static_cast<std::size_t>(layout.columns);
      const auto row = static_cast<double>(rows_above);
      const auto column = static_cast<double>(m % static_cast<std::size_t>(layout.columns));
      maps.push_back({kEdge + kPadding + tick_room + column * (side + gap), first + row * row_step,
                      side, side});
    }
    y += height + kPanelGap;
  }
  layout.width = panel_width + 2 * kEdge;
  layout.height = y - kPanelGap + kEdge;
  if (grid.color_bar) {
    layout.width = std::max(layout.width, kBarWidth + 90);
    layout.color_bar = {layout.width - kEdge - kPadding - kBarWidth, layout.height + 3, kBarWidth,
                        kBarHeight};
    layout.height += kBarRoom;
  }
  return layout;
}

void DrawHeadGrid(const HeadGrid& grid, const std::filesystem::path& out) {
  CheckGrid(grid);
  std::vector<std::size_t> counts;
  std::int64_t longest = 0;
  for (const GridPanel& panel : grid.panels) {
    counts.push_back(panel.maps.size());
    longest = std::max(longest, panel.maps[0].length);
  }
  const GridLayout layout = LayoutGrid(grid, counts, longest);
  Canvas canvas(layout.width, layout.height, out, kGridPngScale);
  for (std::size_t p = 0; p < grid.panels.size(); ++p) {
    const GridPanel& panel = grid.panels[p];
    const Rectangle& area = layout.panels[p];
    canvas.FillRoundedRectangle(area, kRadius, theme::kPanelFill);
    canvas.StrokeRoundedRectangle(area, kRadius, {theme::kPanelLine, 0.75});
    canvas.Text(
        {area.x + kPadding, area.y + kPadding - 2}, panel.title,
        {.size = theme::kTitleSize, .color = theme::kInk, .align_y = AlignY::kTop, .bold = true});
    for (std::size_t m = 0; m < panel.maps.size(); ++m) {
      DrawLabeledMap(&canvas, grid, layout, panel.maps[m], layout.maps[p][m]);
    }
    if (grid.ticks) DrawTicks(&canvas, layout, panel, layout.maps[p]);
  }
  if (grid.color_bar) DrawColorBar(&canvas, layout.color_bar, grid.gamma);
  canvas.Save();
}

}  // namespace clearhead
