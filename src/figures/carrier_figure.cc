// SPDX-License-Identifier: MIT
#include "figures/carrier_figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "figures/canvas.h"
#include "figures/color_scale.h"
#include "figures/theme.h"

namespace clearhead {
namespace {

constexpr double kMargin = 12, kGap = 14, kPadding = 10, kTitle = 18, kLabel = 11, kMapGap = 8;
constexpr double kPanelWidth = 228, kBox = 19, kBoxGap = 3, kCorner = 4;
constexpr int kColumns = 4;
constexpr Color kMark = Color::Hex(0xd62728);

double MapSide() { return (kPanelWidth - 2 * kPadding - (kColumns - 1) * kMapGap) / kColumns; }

double PanelHeight(const CarrierPanel& panel) {
  const auto rows = static_cast<double>((panel.maps.size() + kColumns - 1) / kColumns);
  return kTitle + rows * (MapSide() + kLabel + kMapGap) + 2 * kPadding;
}

// Cut to a width, with an ellipsis.
std::string Fit(const Canvas& canvas, std::string text, const TextStyle& style, double width) {
  if (canvas.Measure(text, style).width <= width) return text;
  while (!text.empty() && canvas.Measure(text + "…", style).width > width) {
    while (text.size() > 1 && (text.back() & 0xc0) == 0x80) text.pop_back();
    text.pop_back();
  }
  return text + "…";
}

void DrawMap(Canvas& canvas, const CarrierFigure& figure, const CarrierMap& map, Point at) {
  const auto T = static_cast<std::int64_t>(figure.tokens.size());
  const double side = MapSide(), cell = side / static_cast<double>(T);
  canvas.Text({at.x + side / 2, at.y + kLabel - 3}, map.label,
              {.size = 7.5, .color = theme::kInk, .align_x = AlignX::kCenter});
  const Rectangle area{at.x, at.y + kLabel, side, side};
  std::vector<std::uint8_t> rgb;
  for (const float weight : map.weights) {
    const Rgb color = WeightColor(weight, 0.6);
    rgb.insert(rgb.end(), color.begin(), color.end());
  }
  canvas.Image(area, static_cast<int>(T), static_cast<int>(T), rgb);
  canvas.StrokeRectangle(area, {theme::kGrid, 0.5});
  canvas.StrokeRectangle({area.x + static_cast<double>(figure.key) * cell,
                          area.y + static_cast<double>(figure.query) * cell, cell, cell},
                         {kMark, 1.2});
}

void DrawPanel(Canvas& canvas, const CarrierFigure& figure, const CarrierPanel& panel, Point at) {
  const Rectangle area{at.x, at.y, kPanelWidth, PanelHeight(panel)};
  canvas.StrokeRoundedRectangle(area, 6, {theme::kMutedInk, 0.75});
  const TextStyle style{.size = 7.5, .color = theme::kInk, .bold = true};
  canvas.Text({at.x + kPadding, at.y + kPadding + 8},
              Fit(canvas, panel.title, style, kPanelWidth - 2 * kPadding), style);
  for (std::size_t i = 0; i < panel.maps.size(); ++i) {
    const auto row = static_cast<double>(i / kColumns), column = static_cast<double>(i % kColumns);
    DrawMap(canvas, figure, panel.maps[i],
            {at.x + kPadding + column * (MapSide() + kMapGap),
             at.y + kPadding + kTitle + row * (MapSide() + kLabel + kMapGap)});
  }
}

void ArrowHead(Canvas& canvas, Point tip, Point from, Color color) {
  const double length = std::hypot(tip.x - from.x, tip.y - from.y);
  const double dx = (tip.x - from.x) / length, dy = (tip.y - from.y) / length;
  const Point corners[] = {tip,
                           {tip.x - 7 * dx - 3 * dy, tip.y - 7 * dy + 3 * dx},
                           {tip.x - 7 * dx + 3 * dy, tip.y - 7 * dy - 3 * dx}};
  canvas.FillPolygon(corners, color);
}

// The sentence with its stacks, over the whole width of the page.
void DrawSentence(Canvas& canvas, const CarrierFigure& figure, const Rectangle& area) {
  const auto T = static_cast<std::int64_t>(figure.tokens.size());
  const double step = area.width / static_cast<double>(T);
  const double words = area.bottom() - 16;
  const auto center = [&](std::int64_t p) {
    return area.x + (static_cast<double>(p) + 0.5) * step;
  };
  for (std::int64_t p = 0; p < T; ++p) {
    const bool end = p == figure.key || p == figure.query;
    const TextStyle word{
        .size = 8.5, .color = end ? kMark : theme::kInk, .align_x = AlignX::kCenter, .bold = end};
    canvas.Text({center(p), words}, Fit(canvas, figure.tokens[p], word, step - 3), word);
    canvas.Text({center(p), words + 12}, fmt::format("{}", p),
                {.size = 7, .color = theme::kMutedInk, .align_x = AlignX::kCenter});
  }
  // Stacks from the words up, lower layers first.
  std::map<std::int64_t, double> top;
  for (const CarrierStack& stack : figure.stacks) {
    double& y = top.try_emplace(stack.position, words - 13).first->second;
    y -= kBox;
    const bool key = stack.position == figure.key;
    const Rectangle box{center(stack.position) - step / 2 + 1.5, y, step - 3, kBox};
    canvas.FillRoundedRectangle(box, kCorner, key ? Color::Hex(0xfde0dd) : Color::Hex(0xe3edf7));
    canvas.StrokeRoundedRectangle(box, kCorner, {key ? kMark : theme::kSeries[0], 0.75});
    const TextStyle name{
        .size = 6.5, .color = theme::kInk, .align_x = AlignX::kCenter, .align_y = AlignY::kMiddle};
    const std::string layers =
        stack.first_layer == stack.last_layer
            ? fmt::format("layer {}", stack.first_layer)
            : fmt::format("layers {}-{}", stack.first_layer, stack.last_layer);
    const double middle = box.x + box.width / 2;
    canvas.Text({middle, box.y + 6.5}, Fit(canvas, stack.name, name, box.width - 3), name);
    canvas.Text({middle, box.y + 14.0}, layers,
                {.size = 5.5,
                 .color = theme::kMutedInk,
                 .align_x = AlignX::kCenter,
                 .align_y = AlignY::kMiddle});
    y -= kBoxGap;
  }
  // The output at the top over the query, and the arrow to it.
  const double out_width = std::max(step - 3, 66.0);
  const Rectangle output{std::min(center(figure.query) - out_width / 2, area.right() - out_width),
                         area.y, out_width, 22};
  canvas.FillRoundedRectangle(output, kCorner, Color::Hex(0xe2f2e9));
  canvas.StrokeRoundedRectangle(output, kCorner, {theme::kSeries[2], 1});
  const TextStyle bold{.size = 9,
                       .color = theme::kInk,
                       .align_x = AlignX::kCenter,
                       .align_y = AlignY::kMiddle,
                       .bold = true};
  canvas.Text({output.x + out_width / 2, output.y + 7},
              Fit(canvas, figure.output, bold, out_width - 4), bold);
  canvas.Text({output.x + out_width / 2, output.y + 17}, figure.output_note,
              {.size = 6.5,
               .color = theme::kMutedInk,
               .align_x = AlignX::kCenter,
               .align_y = AlignY::kMiddle});
  const auto stack_top = top.find(figure.key);
  const Point start{center(figure.key), stack_top == top.end() ? words - 12 : stack_top->second};
  const Point turn{start.x, output.y + 11}, tip{output.x - 1, output.y + 11};
  if (tip.x <= start.x + 8) return;
  const Point path[] = {start, turn, {tip.x - 5, tip.y}};
  canvas.Polyline(path, {kMark, 1.4});
  ArrowHead(canvas, tip, turn, kMark);
  const TextStyle note{.size = 8, .color = kMark, .align_x = AlignX::kRight};
  canvas.Text({tip.x - 10, tip.y - 4}, figure.arrow, note);
}

}  // namespace

void DrawCarrierFigure(const CarrierFigure& figure, const std::filesystem::path& out) {
  Check(!figure.panels.empty() && figure.panels.size() <= 2, "one or two panels");
  double panels = 0;
  for (const CarrierPanel& panel : figure.panels) panels = std::max(panels, PanelHeight(panel));
  std::map<std::int64_t, int> boxes;
  int most = 0;
  for (const CarrierStack& stack : figure.stacks) most = std::max(most, ++boxes[stack.position]);
  const double sentence = 30 + 22 + most * (kBox + kBoxGap) + 34;
  const double width = 2 * kMargin + 2 * kPanelWidth + kGap;
  Canvas canvas(width, 2 * kMargin + panels + kGap + sentence, out, /*png_scale=*/3);
  for (std::size_t i = 0; i < figure.panels.size(); ++i) {
    DrawPanel(canvas, figure, figure.panels[i],
              {kMargin + static_cast<double>(i) * (kPanelWidth + kGap), kMargin});
  }
  DrawSentence(canvas, figure,
               {kMargin, kMargin + panels + kGap + 10, width - 2 * kMargin, sentence - 10});
  canvas.Save();
}

}  // namespace clearhead
