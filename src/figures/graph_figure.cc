// SPDX-License-Identifier: MIT
#include "figures/graph_figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "figures/theme.h"
#include "figures/token_columns.h"

namespace clearhead {
namespace {

constexpr double kMaxPage = 800, kMinPage = 360, kEdge = 8, kRowNames = 44, kHeader = 34;
constexpr double kLaneGap = 5, kColumnGap = 8, kPadding = 4, kMaxLane = 76, kMinLane = 24;
constexpr double kPlainRow = 16, kLogitRow = 25, kLogitGap = 24, kPositions = 12, kLegend = 16;
constexpr double kTitleSize = 10, kLabelSize = 8, kNoteSize = 7, kCorner = 3.5;

Color OnPaper(Color color, double amount) {
  const auto mix = [&](double c) { return 1.0 - amount * (1.0 - c); };
  return {mix(color.red), mix(color.green), mix(color.blue)};
}

Color ColorOf(GraphRow row) {
  switch (row) {
    case GraphRow::kToken:
    case GraphRow::kOther:
      return theme::kMutedInk;
    case GraphRow::kError:
      return theme::kSeries[3];
    case GraphRow::kGroup:
      return theme::kSeries[0];
    case GraphRow::kLogit:
      return theme::kSeries[2];
  }
  return theme::kInk;
}

// From below to above an S that is vertical at its ends; between boxes of one height one that is
// horizontal there.
std::vector<Point> Curve(const Rectangle& from, const Rectangle& to) {
  constexpr int kSteps = 40;
  const bool up = from.y > to.bottom() + 2;
  Point a{from.x + from.width / 2, from.y}, d{to.x + to.width / 2, to.bottom()};
  if (!up) {
    const bool right = from.x <= to.x;
    a = {right ? from.right() : from.x, from.y + from.height / 2};
    d = {right ? to.x : to.right(), to.y + to.height / 2};
  }
  const Point b = up ? Point{a.x, (a.y + d.y) / 2} : Point{(a.x + d.x) / 2, a.y};
  const Point c = up ? Point{d.x, (a.y + d.y) / 2} : Point{(a.x + d.x) / 2, d.y};
  std::vector<Point> points;
  for (int i = 0; i <= kSteps; ++i) {
    const double t = static_cast<double>(i) / kSteps, u = 1 - t;
    const double wa = u * u * u, wb = 3 * u * u * t, wc = 3 * u * t * t, wd = t * t * t;
    points.push_back(
        {wa * a.x + wb * b.x + wc * c.x + wd * d.x, wa * a.y + wb * b.y + wc * c.y + wd * d.y});
  }
  return points;
}

class Builder {
 public:
  explicit Builder(const GraphFigure& figure)
      : figure_(figure),
        ruler_(1, 1, "ruler.svg"),  // never saved
        layer_(std::clamp(
            std::floor(400.0 / static_cast<double>(std::max<std::int64_t>(figure.layers, 1))), 22.0,
            34.0)),
        gap_(std::clamp(0.4 * layer_, 7.0, 12.0)) {}

  GraphLayout Build() {
    layout_.nodes.assign(figure_.nodes.size(), {});
    PlaceColumns();
    PlaceNodes();
    for (const GraphFigureEdge& edge : figure_.edges) PlaceEdge(edge);
    PlaceFrame();
    return std::move(layout_);
  }

 private:
  double Width(const std::string& text, double size, bool bold = false) const {
    return ruler_.Measure(text, {.size = size, .color = theme::kInk, .bold = bold}).width;
  }

  double NodeWidth(const GraphFigureNode& node) const {
    const double note = HeightOf(node) < 22 ? 0 : Width(node.note, kNoteSize);
    return std::clamp(std::max(Width(TokenLabel(node.label), kLabelSize), note) + 2 * kPadding,
                      kMinLane, kMaxLane);
  }

  double HeightOf(const GraphFigureNode& node) const {
    if (node.row == GraphRow::kLogit) return kLogitRow;
    if (node.row != GraphRow::kGroup) return kPlainRow;
    const auto layers = static_cast<double>(node.last_layer - node.first_layer + 1);
    return layers * layer_ - gap_;
  }

  bool Has(GraphRow row) const {
    return std::any_of(figure_.nodes.begin(), figure_.nodes.end(),
                       [&](const GraphFigureNode& node) { return node.row == row; });
  }

  // Groups at a position side by side where their layers overlap: the lane of each node.
  void PlaceColumns() {
    lanes_.assign(figure_.nodes.size(), 0);
    std::map<std::int64_t, std::vector<std::int64_t>> ends;  // position: last layer of each lane
    std::vector<std::size_t> order;
    std::int64_t length = 1;
    for (std::size_t n = 0; n < figure_.nodes.size(); ++n) {
      length = std::max(length, figure_.nodes[n].position + 1);
      if (figure_.nodes[n].row == GraphRow::kGroup) order.push_back(n);
    }
    for (const std::int64_t p : figure_.positions) length = std::max(length, p + 1);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return figure_.nodes[a].first_layer < figure_.nodes[b].first_layer;
    });
    for (const std::size_t n : order) {
      const GraphFigureNode& node = figure_.nodes[n];
      std::vector<std::int64_t>& lanes = ends[node.position];
      const auto free = std::find_if(lanes.begin(), lanes.end(),
                                     [&](std::int64_t end) { return end < node.first_layer; });
      lanes_[n] = static_cast<std::size_t>(free - lanes.begin());
      if (free == lanes.end()) lanes.push_back(0);
      lanes[lanes_[n]] = node.last_layer;
    }
    // Beside the first lane, which stands over the token, the rest has its place below the others.
    lane_widths_.assign(static_cast<std::size_t>(length), {kMinLane});
    std::vector<double> rest(static_cast<std::size_t>(length), 0.0);
    double logits = 0, sum = 0;
    for (std::size_t n = 0; n < figure_.nodes.size(); ++n) {
      const GraphFigureNode& node = figure_.nodes[n];
      const double width = NodeWidth(node);
      std::vector<double>& lanes = lane_widths_[node.position];
      if (node.row == GraphRow::kLogit) {
        logits += width + kLaneGap;
      } else if (node.row == GraphRow::kOther || node.row == GraphRow::kError) {
        rest[node.position] += width + kLaneGap;
      } else {
        lanes.resize(std::max(lanes.size(), lanes_[n] + 1), 0.0);
        lanes[lanes_[n]] = std::max(lanes[lanes_[n]], width);
      }
    }
    std::vector<double> widths;
    for (std::int64_t p = 0; p < length; ++p) {
      content_.push_back(
          std::max(LanesBefore(p, lane_widths_[p].size()), LanesBefore(p, 1) + rest[p]) - kLaneGap);
      widths.push_back(content_.back() + kColumnGap);
    }
    for (const std::int64_t p : figure_.positions) sum += widths[p];
    const double around = 2 * kEdge + kRowNames;
    constexpr double kDigits = 12;  // the subtitle's numbers are not known yet
    const double title = std::max(Width(figure_.title, kTitleSize, true),
                                  Width(Subtitle(), kNoteSize + 0.5) + kDigits) +
                         2 * kEdge;
    layout_.scene.width = std::ceil(
        std::clamp(std::max({sum, logits, title - kRowNames}) + around, kMinPage, kMaxPage));
    columns_ = ArrangeColumns(widths, figure_.positions, 1, kEdge + kRowNames,
                              layout_.scene.width - around);
  }

  // Where a lane begins, from the left of what is at the position.
  double LanesBefore(std::int64_t position, std::size_t lane) const {
    double before = 0;
    for (std::size_t i = 0; i < lane; ++i) before += lane_widths_[position][i] + kLaneGap;
    return before;
  }

  void PlaceNodes() {
    // Rows from the top, then their names.
    double y = kHeader;
    std::vector<std::pair<std::string, double>> names;  // and the middle of the row
    logits_ = y;
    if (Has(GraphRow::kLogit)) {
      names.push_back({"logits", y + kLogitRow / 2});
      y += kLogitRow + kLogitGap;
    }
    layers_ = y;
    for (std::int64_t l = figure_.layers - 1; l >= 0; --l) {
      // With many layers every other name is enough.
      if (layer_ >= 11 || l % 2 == 0) {
        names.push_back({fmt::format("layer {}", l), y + (layer_ - gap_) / 2});
      }
      y += layer_;
    }
    y += gap_ / 2;
    if (Has(GraphRow::kOther) || Has(GraphRow::kError)) {
      rest_ = y;
      names.push_back({"the rest", y + kPlainRow / 2});
      y += kPlainRow + kLogitGap;
    }
    tokens_ = y;
    if (Has(GraphRow::kToken)) {
      names.push_back({"tokens", y + kPlainRow / 2});
      y += kPlainRow;
    }
    bottom_ = y;
    for (const auto& [name, middle] : names) {
      AddText(name, {kEdge, middle - 5, kRowNames - 4, 10},
              {.size = kNoteSize, .color = theme::kMutedInk});
    }
    PlaceLogits();
    for (std::size_t n = 0; n < figure_.nodes.size(); ++n) {
      const GraphFigureNode& node = figure_.nodes[n];
      const std::optional<TokenColumn> column = ColumnOf(columns_, node.position);
      if (!column || node.row == GraphRow::kLogit) continue;
      const double left = column->center() - content_[node.position] / 2;
      const double lane = lane_widths_[node.position][lanes_[n]];
      Rectangle area{left + LanesBefore(node.position, lanes_[n]), 0, lane, HeightOf(node)};
      if (node.row == GraphRow::kGroup) {
        area.y = layers_ + static_cast<double>(figure_.layers - 1 - node.last_layer) * layer_;
      } else if (node.row == GraphRow::kToken) {
        area.y = tokens_;
        area.width = NodeWidth(node);
        area.x += (lane - area.width) / 2;
      } else {
        area.y = rest_;
        area.width = NodeWidth(node);
        double& used = used_[node.position];
        area.x = left + LanesBefore(node.position, 1) + used;
        used += area.width + kLaneGap;
      }
      PlaceBox(n, area);
    }
  }

  // In one row that ends over the position they belong to, or where the page does.
  void PlaceLogits() {
    double all = -kLaneGap;
    std::optional<TokenColumn> column;
    for (const GraphFigureNode& node : figure_.nodes) {
      if (node.row != GraphRow::kLogit) continue;
      all += NodeWidth(node) + kLaneGap;
      column = ColumnOf(columns_, node.position);
    }
    if (!column) return;
    const double right = layout_.scene.width - kEdge;
    double x = std::max(kEdge + kRowNames, std::min(column->center() - all / 2, right - all));
    for (std::size_t n = 0; n < figure_.nodes.size(); ++n) {
      if (figure_.nodes[n].row != GraphRow::kLogit) continue;
      const double width = NodeWidth(figure_.nodes[n]);
      if (x + width > right) break;  // the likeliest come first
      PlaceBox(n, {x, logits_, width, kLogitRow});
      x += width + kLaneGap;
    }
  }

  void PlaceBox(std::size_t n, const Rectangle& area) {
    const GraphFigureNode& node = figure_.nodes[n];
    const Color color = ColorOf(node.row);
    layout_.nodes[n] = area;
    layout_.scene.boxes.push_back({area,
                                   kCorner,
                                   OnPaper(color, 0.07 + 0.4 * std::clamp(node.strength, 0.0, 1.0)),
                                   {color, theme::kAxisWidth}});
    const bool two = !node.note.empty() && area.height >= 22;
    const double middle = area.y + area.height / 2;
    const Rectangle line{area.x + 2, middle - (two ? 10 : 5), area.width - 4, 10};
    AddText(TokenLabel(node.label), line,
            {.size = kLabelSize, .color = theme::kInk, .align_x = AlignX::kCenter});
    if (!two) return;
    AddText(node.note, {line.x, middle, line.width, 10},
            {.size = kNoteSize, .color = theme::kMutedInk, .align_x = AlignX::kCenter});
  }

  // How much of the graph is on the page: edges of positions without room are not.
  std::string Subtitle() const {
    return fmt::format("{} strong edges between groups, {:.0f} % of all but the bias; {}", drawn_,
                       100.0 * share_, figure_.note);
  }

  void PlaceEdge(const GraphFigureEdge& edge) {
    const Rectangle &from = layout_.nodes[edge.from], &to = layout_.nodes[edge.to];
    if (from.width == 0 || to.width == 0) return;
    ++drawn_;
    share_ += edge.share;
    const double strength = std::clamp(edge.strength, 0.0, 1.0);
    const Color color = edge.negative ? theme::kSeries[1] : theme::kSeries[0];
    layout_.scene.arrows.push_back({Curve(from, to),
                                    {color.WithAlpha(0.3 + 0.5 * strength), 0.5 + 3.0 * strength,
                                     edge.negative ? theme::kReferenceDash : 0},
                                    0});
  }

  void PlaceFrame() {
    Scene& scene = layout_.scene;
    const double width = scene.width - 2 * kEdge;
    AddText(figure_.title, {kEdge, 4, width, 13},
            {.size = kTitleSize, .color = theme::kInk, .bold = true});
    AddText(Subtitle(), {kEdge, 17, width, 11},
            {.size = kNoteSize + 0.5, .color = theme::kMutedInk});
    for (const TokenColumn& column : columns_) {
      const bool gap = column.position < 0;
      AddText(gap ? "…" : fmt::format("{}", column.position),
              gap ? Rectangle{column.x, bottom_ + 1, column.width, kPositions}
                  : Rectangle{column.center() - content_[column.position] / 2, bottom_ + 1,
                              lane_widths_[column.position][0], kPositions},
              {.size = kNoteSize, .color = theme::kMutedInk, .align_x = AlignX::kCenter});
    }
    const double y = bottom_ + 1 + kPositions, middle = y + kLegend / 2;
    double x = kEdge + kRowNames;
    for (const bool negative : {false, true}) {
      const std::string text = negative ? "lowers" : "raises";
      scene.arrows.push_back({{{x, middle}, {x + 18, middle}},
                              {negative ? theme::kSeries[1] : theme::kSeries[0], 1.6,
                               negative ? theme::kReferenceDash : 0},
                              0});
      AddText(text, {x + 22, y, 40, kLegend}, {.size = kNoteSize, .color = theme::kInk});
      x += 70;
    }
    scene.height = std::ceil(y + kLegend + 2);
  }

  void AddText(std::string text, const Rectangle& room, TextStyle style) {
    text = FitText(ruler_, std::move(text), style, room.width);
    style.align_y = AlignY::kMiddle;
    double x = room.x;
    if (style.align_x == AlignX::kCenter) x += room.width / 2;
    layout_.scene.texts.push_back({std::move(text), {x, room.y + room.height / 2}, style, room});
  }

  const GraphFigure& figure_;
  Canvas ruler_;
  double layer_;  // height of a layer's row, with
  double gap_;    // the room for curves between boxes of different layers
  GraphLayout layout_;
  std::vector<std::size_t> lanes_;                // of groups
  std::vector<std::vector<double>> lane_widths_;  // [position][lane]
  std::vector<double> content_;                   // [position] how wide all of it is
  std::map<std::int64_t, double> used_;           // by the rest at a position
  std::vector<TokenColumn> columns_;
  int drawn_ = 0;
  double share_ = 0;
  double logits_ = 0, layers_ = 0, rest_ = 0, tokens_ = 0, bottom_ = 0;  // tops of rows
};

}  // namespace

GraphLayout LayoutGraphFigure(const GraphFigure& figure) {
  for (const GraphFigureNode& node : figure.nodes) {
    Check(node.row != GraphRow::kGroup ||
              (0 <= node.first_layer && node.first_layer <= node.last_layer &&
               node.last_layer < figure.layers),
          "a group's layers are the model's");
  }
  for (const GraphFigureEdge& edge : figure.edges) {
    Check(edge.from < figure.nodes.size() && edge.to < figure.nodes.size(), "edges join nodes");
  }
  Check(!figure.positions.empty(), "a position to show");
  return Builder(figure).Build();
}

void DrawGraphFigure(const GraphFigure& figure, const std::filesystem::path& out) {
  const GraphLayout layout = LayoutGraphFigure(figure);
  Canvas canvas(layout.scene.width, layout.scene.height, out, /*png_scale=*/3);
  DrawArrows(&canvas, layout.scene);  // boxes cover the curves that pass behind them
  DrawBoxes(&canvas, layout.scene);
  DrawTexts(&canvas, layout.scene);
  canvas.Save();
}

}  // namespace clearhead
