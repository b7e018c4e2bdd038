// SPDX-License-Identifier: MIT
#include "figures/circuit_diagram.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "figures/theme.h"

namespace clearhead {
namespace {

constexpr double kMargin = 14, kBoxHeight = 26, kLeastBox = 44, kBoxGap = 12, kRowGap = 34;
constexpr double kBoxPadding = 6, kCorner = 4, kLegendHeight = 22, kHeaderHeight = 34;
constexpr double kNoteSize = 6.5, kLeastWidth = 330, kAsideGap = 30;
constexpr Color kBox = theme::kSeries[0], kNegativeBox = theme::kSeries[1];

Color KindColor(DiagramEdgeKind kind) {
  switch (kind) {
    case DiagramEdgeKind::kQuery:
      return theme::kSeries[5];
    case DiagramEdgeKind::kKey:
      return theme::kSeries[1];
    case DiagramEdgeKind::kValue:
      return theme::kSeries[2];
    case DiagramEdgeKind::kOther:
      return theme::kMutedInk;
  }
  return theme::kInk;
}

// The colour laid over paper, so that edges do not shine through boxes.
Color OnPaper(Color color, double amount) {
  const auto mix = [&](double c) { return 1.0 - amount * (1.0 - c); };
  return {mix(color.red), mix(color.green), mix(color.blue)};
}

// An S from below to above, vertical at both ends.
std::vector<Point> Curve(Point from, Point to) {
  constexpr int kSteps = 24;
  const double bend = 0.5 * (from.y - to.y);
  std::vector<Point> points;
  for (int i = 0; i <= kSteps; ++i) {
    const double t = static_cast<double>(i) / kSteps, u = 1 - t;
    const double a = u * u * u, b = 3 * u * u * t, c = 3 * u * t * t, d = t * t * t;
    points.push_back({a * from.x + b * from.x + c * to.x + d * to.x,
                      a * from.y + b * (from.y - bend) + c * (to.y + bend) + d * to.y});
  }
  return points;
}

struct Box {
  double width = 0;
  Rectangle area{};
};

void DrawBox(Canvas& canvas, const DiagramNode& node, const Rectangle& area) {
  const double strength = std::clamp(node.strength, 0.0, 1.0);
  const Color color = node.negative ? kNegativeBox : kBox;
  const Color fill = OnPaper(color, 0.08 + 0.72 * strength);
  const Color ink = strength > 0.55 ? theme::kPaper : theme::kInk;
  canvas.FillRoundedRectangle(area, kCorner, fill);
  canvas.StrokeRoundedRectangle(area, kCorner, {color, theme::kAxisWidth});
  const double middle = area.x + area.width / 2;
  const double y = area.y + area.height / 2;
  const bool noted = !node.note.empty();
  canvas.Text({middle, noted ? y - 5 : y}, node.label,
              {theme::kTickSize, ink, AlignX::kCenter, AlignY::kMiddle, /*bold=*/true});
  if (noted) {
    canvas.Text({middle, y + 6}, node.note, {kNoteSize, ink, AlignX::kCenter, AlignY::kMiddle});
  }
}

void DrawLegend(Canvas& canvas, const CircuitDiagram& diagram, double y) {
  struct Entry {
    const char* text;
    DiagramEdgeKind kind;
    bool negative;
  };
  constexpr std::array kEntries = {Entry{"to queries", DiagramEdgeKind::kQuery, false},
                                   Entry{"to keys", DiagramEdgeKind::kKey, false},
                                   Entry{"to values", DiagramEdgeKind::kValue, false},
                                   Entry{"to MLPs, logits", DiagramEdgeKind::kOther, false},
                                   Entry{"corrupting it helps", DiagramEdgeKind::kOther, true}};
  double x = kMargin;
  const TextStyle style{kNoteSize + 0.5, theme::kMutedInk, AlignX::kLeft, AlignY::kMiddle};
  for (const Entry& entry : kEntries) {
    const bool used =
        std::any_of(diagram.edges.begin(), diagram.edges.end(), [&](const DiagramEdge& edge) {
          return entry.negative ? edge.negative : edge.kind == entry.kind;
        });
    if (!used) continue;
    canvas.Line({x, y}, {x + 16, y},
                {KindColor(entry.kind), theme::kSeriesWidth, entry.negative ? 3.0 : 0.0});
    canvas.Text({x + 20, y}, entry.text, style);
    x += 20 + canvas.Measure(entry.text, style).width + 12;
  }
}

}  // namespace

std::vector<std::vector<std::size_t>> ArrangeRows(const CircuitDiagram& diagram) {
  std::vector<std::vector<std::size_t>> rows(diagram.rows.size());
  for (std::size_t n = 0; n < diagram.nodes.size(); ++n) {
    rows[static_cast<std::size_t>(diagram.nodes[n].row)].push_back(n);
  }
  // Every node moves to the mean place of what it is joined to, up and down in turn; places are
  // relative to the row's middle.
  std::vector<double> place(diagram.nodes.size(), 0.0);
  const auto settle = [&](const std::vector<std::size_t>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      place[row[i]] = static_cast<double>(i) - 0.5 * static_cast<double>(row.size() - 1);
    }
  };
  for (const auto& row : rows) settle(row);
  for (int sweep = 0; sweep < 8; ++sweep) {
    for (std::size_t step = 0; step < rows.size(); ++step) {
      std::vector<std::size_t>& row = rows[sweep % 2 == 0 ? step : rows.size() - 1 - step];
      std::vector<std::pair<double, std::size_t>> wanted;
      for (const std::size_t node : row) {
        double sum = 0.0, weight = 0.0;
        for (const DiagramEdge& edge : diagram.edges) {
          if (edge.from != node && edge.to != node) continue;
          const std::size_t other = edge.from == node ? edge.to : edge.from;
          sum += (0.05 + edge.strength) * place[other];
          weight += 0.05 + edge.strength;
        }
        wanted.emplace_back(weight > 0.0 ? sum / weight : place[node], node);
      }
      std::stable_sort(wanted.begin(), wanted.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = wanted[i].second;
      settle(row);
    }
  }
  return rows;
}

void DrawCircuitDiagram(const CircuitDiagram& diagram, const std::filesystem::path& out) {
  const std::vector<std::vector<std::size_t>> rows = ArrangeRows(diagram);
  const TextStyle label{theme::kTickSize, theme::kInk, AlignX::kCenter, AlignY::kMiddle, true};
  const TextStyle note{kNoteSize, theme::kInk};
  const TextStyle row_name{theme::kTickSize, theme::kMutedInk, AlignX::kLeft, AlignY::kMiddle};

  // Widths need a canvas to measure on; its size is known only afterwards.
  Canvas ruler(10, 10, out);
  std::vector<Box> boxes(diagram.nodes.size());
  for (std::size_t n = 0; n < boxes.size(); ++n) {
    boxes[n].width = std::max({kLeastBox, ruler.Measure(diagram.nodes[n].label, label).width,
                               ruler.Measure(diagram.nodes[n].note, note).width}) +
                     2 * kBoxPadding;
  }
  double names = 0, widest = 0, aside = 0, height = kHeaderHeight + kLegendHeight + kMargin;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].empty()) continue;
    names = std::max(names, ruler.Measure(diagram.rows[r], row_name).width);
    double width = -kBoxGap;
    for (const std::size_t n : rows[r]) {
      if (diagram.nodes[n].aside) {
        aside = std::max(aside, boxes[n].width + kAsideGap);
      } else {
        width += boxes[n].width + kBoxGap;
      }
    }
    widest = std::max(widest, width);
    height += kBoxHeight + kRowGap;
  }
  height -= kRowGap;
  const double left = kMargin + names + 16;
  const double needed = std::max(
      ruler
          .Measure(diagram.title,
                   {theme::kTitleSize, theme::kInk, AlignX::kLeft, AlignY::kBaseline, true})
          .width,
      ruler.Measure(diagram.subtitle, {kNoteSize + 0.5, theme::kInk}).width);
  const double width =
      std::max({kLeastWidth, left + widest + aside + kMargin, needed + 2 * kMargin});

  Canvas canvas(width, height, out);
  canvas.Text({kMargin, kMargin + 4}, diagram.title,
              {theme::kTitleSize, theme::kInk, AlignX::kLeft, AlignY::kBaseline, /*bold=*/true});
  canvas.Text({kMargin, kMargin + 15}, diagram.subtitle, {kNoteSize + 0.5, theme::kMutedInk});
  const double centre = left + (width - kMargin - left - aside) / 2;
  double y = height - kLegendHeight - kBoxHeight;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].empty()) continue;
    double total = -kBoxGap;
    for (const std::size_t n : rows[r]) {
      if (!diagram.nodes[n].aside) total += boxes[n].width + kBoxGap;
    }
    double x = centre - total / 2;
    canvas.Line({left, y + kBoxHeight / 2}, {width - kMargin, y + kBoxHeight / 2},
                {theme::kGrid, theme::kGridWidth});
    canvas.Text({kMargin, y + kBoxHeight / 2}, diagram.rows[r], row_name);
    for (const std::size_t n : rows[r]) {
      if (diagram.nodes[n].aside) {
        boxes[n].area = {width - kMargin - boxes[n].width, y, boxes[n].width, kBoxHeight};
        continue;
      }
      boxes[n].area = {x, y, boxes[n].width, kBoxHeight};
      x += boxes[n].width + kBoxGap;
    }
    y -= kBoxHeight + kRowGap;
  }
  // Weak edges first, so that strong ones lie on top.
  std::vector<DiagramEdge> edges = diagram.edges;
  std::stable_sort(edges.begin(), edges.end(), [](const DiagramEdge& a, const DiagramEdge& b) {
    return a.strength < b.strength;
  });
  for (const DiagramEdge& edge : edges) {
    const Rectangle &from = boxes[edge.from].area, &to = boxes[edge.to].area;
    // Queries arrive left, keys in the middle, values right.
    const double shift = edge.kind == DiagramEdgeKind::kQuery   ? -0.25
                         : edge.kind == DiagramEdgeKind::kValue ? 0.25
                                                                : 0.0;
    const std::vector<Point> curve =
        Curve({from.x + from.width / 2, from.y}, {to.x + to.width * (0.5 + shift), to.bottom()});
    const double strength = std::clamp(edge.strength, 0.0, 1.0);
    canvas.Polyline(curve, {KindColor(edge.kind).WithAlpha(0.35 + 0.5 * strength),
                            0.4 + 2.4 * strength, edge.negative ? 3.0 : 0.0});
  }
  for (std::size_t n = 0; n < boxes.size(); ++n) DrawBox(canvas, diagram.nodes[n], boxes[n].area);
  DrawLegend(canvas, diagram, height - kLegendHeight / 2);
  canvas.Save();
}

}  // namespace clearhead
