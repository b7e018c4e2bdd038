// SPDX-License-Identifier: MIT
#include "figures/line_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "core/error.h"
#include "figures/canvas.h"
#include "figures/chart_axis.h"
#include "figures/theme.h"

namespace clearhead {
namespace {

constexpr double kEdge = 8;           // free room around everything
constexpr double kGap = 5;            // between an axis, its numbers and its label
constexpr double kColumn = 1;         // width of a column of a thinned series
constexpr double kLegendRow = 13;     // height
constexpr double kLegendSample = 18;  // width of the piece of line
constexpr double kMargin = 0.04;      // free room between the data and the frame

const TextStyle kTickStyle{.size = theme::kTickSize, .color = theme::kInk};
const TextStyle kLabelStyle{
    .size = theme::kLabelSize, .color = theme::kInk, .align_x = AlignX::kCenter};

// How one series looks.
struct Look {
  Color color;
  double width;
  double dash;
};

struct LegendEntry {
  const Series* series;
  Look look;
  std::string text;
  double x, y;  // of the sample's left end, from the legend's corner
};

// Everything that is decided before drawing.
struct Layout {
  AxisScale x, left, right;
  std::vector<Tick> x_ticks, left_ticks, right_ticks;
  bool has_right = false;
  Rectangle plot;
  std::vector<Look> looks;  // one per series
  std::vector<LegendEntry> legend;
  double legend_x, legend_y;

  Point Place(double px, double py, ChartAxis axis) const {
    const AxisScale& scale = axis == ChartAxis::kRight ? right : left;
    return {plot.x + plot.width * x.Position(px), plot.bottom() - plot.height * scale.Position(py)};
  }
};

bool IsLog(const LineChart& chart, ChartAxis axis) {
  return axis == ChartAxis::kRight ? chart.log_right : chart.log_left;
}

bool Shown(const LineChart& chart, const Series& series, std::size_t i) {
  return CanShow(series.x[i], chart.log_x) && CanShow(series.y[i], IsLog(chart, series.axis));
}

void MakeScales(const LineChart& chart, Layout* layout) {
  AxisRange x(chart.log_x), left(chart.log_left), right(chart.log_right);
  for (const Series& series : chart.series) {
    Check(series.x.size() == series.y.size(), "a series needs as many x as y");
    if (series.axis == ChartAxis::kRight) layout->has_right = true;
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      if (!Shown(chart, series, i)) continue;
      x.Include(series.x[i]);
      (series.axis == ChartAxis::kRight ? right : left).Include(series.y[i]);
    }
  }
  for (const ReferenceLine& line : chart.reference_lines) {
    if (line.axis == ChartAxis::kRight) layout->has_right = true;
    (line.axis == ChartAxis::kRight ? right : left).Include(line.value);
  }
  layout->x = x.Scale(chart.log_x ? kMargin : kMargin / 2);
  layout->left = left.Scale(kMargin);
  layout->right = right.Scale(kMargin);
}

// Colours go to the series that are not faint, in turn. The second round through the colours is
// dashed, and so is the right axis: two marks to tell lines apart by on a grey print.
void MakeLooks(const LineChart& chart, Layout* layout) {
  std::size_t next = 0;
  for (const Series& series : chart.series) {
    const Color color = theme::kSeries[next % theme::kSeries.size()];
    const bool dashed = series.axis == ChartAxis::kRight || next >= theme::kSeries.size();
    layout->looks.push_back(
        series.faint ? Look{color.WithAlpha(theme::kFaintAlpha), theme::kFaintWidth, 0}
                     : Look{color, theme::kSeriesWidth, dashed ? theme::kSeriesDash : 0});
    if (!series.faint) ++next;
  }
}

// Fills rows from the left; the legend's height.
double MakeLegend(const Canvas& canvas, const LineChart& chart, double width, Layout* layout) {
  double x = 0, y = 0;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    if (series.name.empty()) continue;
    LegendEntry entry{&series, layout->looks[i], series.name, 0, 0};
    if (series.axis == ChartAxis::kRight) entry.text += " (right)";
    const double text_width = canvas.Measure(entry.text, kTickStyle).width;
    const double entry_width = kLegendSample + kGap + text_width;
    if (x > 0 && x + entry_width > width) {
      x = 0;
      y += kLegendRow;
    }
    entry.x = x;
    entry.y = y;
    x += entry_width + 3 * kGap;
    layout->legend.push_back(std::move(entry));
  }
  return layout->legend.empty() ? 0 : y + kLegendRow;
}

double WidestLabel(const Canvas& canvas, const std::vector<Tick>& ticks) {
  double widest = 0;
  for (const Tick& tick : ticks) {
    widest = std::max(widest, canvas.Measure(tick.label, kTickStyle).width);
  }
  return widest;
}

Layout MakeLayout(const Canvas& canvas, const LineChart& chart) {
  Layout layout;
  MakeScales(chart, &layout);
  MakeLooks(chart, &layout);

  // Upright room first: it decides how many ticks the side axes get, whose labels take room across.
  const double line = 1.3 * theme::kLabelSize;
  double top = kEdge;
  if (!chart.title.empty()) top += 1.6 * theme::kTitleSize;
  layout.legend_y = top;
  double bottom = chart.height - kEdge - kGap - theme::kTickSize;
  if (!chart.x_label.empty()) bottom -= line;
  const int rows = std::max(2, static_cast<int>((bottom - top) / 36));
  layout.left_ticks = MakeTicks(layout.left, rows);
  if (layout.has_right) layout.right_ticks = MakeTicks(layout.right, rows);

  double left = kEdge + WidestLabel(canvas, layout.left_ticks) + kGap;
  if (!chart.left_label.empty()) left += line + 2;
  double right = chart.width - kEdge;
  if (layout.has_right) {
    right -= WidestLabel(canvas, layout.right_ticks) + kGap;
    if (!chart.right_label.empty()) right -= line + 2;
  } else {
    right -= kEdge;  // half of the last number on the x axis may stand beyond the frame
  }
  right = std::max(right, left + 1);
  layout.legend_x = left;
  top += MakeLegend(canvas, chart, right - left, &layout);
  if (top > kEdge) top += 3;
  layout.plot = {left, top, right - left, std::max(1.0, bottom - top)};
  layout.x_ticks = MakeTicks(layout.x, std::max(2, static_cast<int>((right - left) / 55)));
  return layout;
}

// The runs of joined points, thinned: of consecutive points in one column, the first, the lowest,
// the highest and the last stay, in their order, which draws the same ink.
std::vector<std::vector<Point>> ThinnedRuns(const LineChart& chart, const Series& series,
                                            const Layout& layout) {
  std::vector<std::vector<Point>> runs;
  std::vector<Point> column;
  // Sixteenths of a point: too fine to see, and short to write.
  const auto rounded = [](double v) { return std::round(v * 16) / 16; };
  const auto flush = [&] {
    if (column.empty()) return;
    const auto by_y = [](const Point& a, const Point& b) { return a.y < b.y; };
    const auto [low, high] = std::minmax_element(column.begin(), column.end(), by_y);
    std::array<std::ptrdiff_t, 4> kept = {0, low - column.begin(), high - column.begin(),
                                          static_cast<std::ptrdiff_t>(column.size()) - 1};
    std::sort(kept.begin(), kept.end());
    std::ptrdiff_t last = -1;
    for (const std::ptrdiff_t i : kept) {
      if (i != last) runs.back().push_back(column[static_cast<std::size_t>(i)]);
      last = i;
    }
    column.clear();
  };
  bool joined = false;
  double column_index = 0;
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    if (!Shown(chart, series, i)) {
      flush();
      joined = false;
      continue;
    }
    Point point = layout.Place(series.x[i], series.y[i], series.axis);
    point = {rounded(point.x), rounded(point.y)};
    const double index = std::floor(point.x / kColumn);
    if (!joined || index != column_index) flush();
    if (!joined) runs.emplace_back();
    column_index = index;
    joined = true;
    column.push_back(point);
  }
  flush();
  return runs;
}

// Points that fall into one small square are one dot.
std::vector<Point> ThinnedPoints(const LineChart& chart, const Series& series,
                                 const Layout& layout) {
  std::set<std::pair<double, double>> taken;
  std::vector<Point> points;
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    if (!Shown(chart, series, i)) continue;
    const Point point = layout.Place(series.x[i], series.y[i], series.axis);
    if (taken.emplace(std::floor(point.x / kColumn), std::floor(point.y / kColumn)).second) {
      points.push_back(point);
    }
  }
  return points;
}

void DrawSeries(const LineChart& chart, const Series& series, const Look& look,
                const Layout& layout, Canvas* canvas, std::vector<Point>* drawn) {
  if (series.points_only) {
    const std::vector<Point> points = ThinnedPoints(chart, series, layout);
    // Hundreds of full dots would be a blot.
    const double radius = theme::kPointRadius * (points.size() > 200 ? 0.5 : 1);
    for (const Point& point : points) canvas->FillCircle(point, radius, look.color);
    drawn->insert(drawn->end(), points.begin(), points.end());
    return;
  }
  for (const std::vector<Point>& run : ThinnedRuns(chart, series, layout)) {
    canvas->Polyline(run, {look.color, look.width, look.dash});
    if (run.size() == 1) canvas->FillCircle(run[0], theme::kPointRadius * 0.8, look.color);
    drawn->insert(drawn->end(), run.begin(), run.end());
  }
}

// An axis with a single line takes its colour when there are two axes to confuse.
Color AxisColor(const LineChart& chart, const Layout& layout, ChartAxis axis) {
  if (!layout.has_right) return theme::kInk;
  Color color = theme::kInk;
  int lines = 0;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    if (chart.series[i].axis != axis || chart.series[i].faint) continue;
    color = layout.looks[i].color;
    ++lines;
  }
  return lines == 1 ? color : theme::kInk;
}

void DrawGrid(const Layout& layout, Canvas* canvas) {
  const Rectangle& plot = layout.plot;
  const Stroke grid{theme::kGrid, theme::kGridWidth};
  for (const Tick& tick : layout.x_ticks) {
    if (tick.label.empty()) continue;
    const double x = plot.x + plot.width * layout.x.Position(tick.value);
    canvas->Line({x, plot.y}, {x, plot.bottom()}, grid);
  }
  for (const Tick& tick : layout.left_ticks) {
    if (tick.label.empty()) continue;
    const double y = plot.bottom() - plot.height * layout.left.Position(tick.value);
    canvas->Line({plot.x, y}, {plot.right(), y}, grid);
  }
}

void DrawSideAxis(const Layout& layout, ChartAxis axis, Color color, const std::string& label,
                  Canvas* canvas) {
  const bool is_right = axis == ChartAxis::kRight;
  const Rectangle& plot = layout.plot;
  const AxisScale& scale = is_right ? layout.right : layout.left;
  const std::vector<Tick>& ticks = is_right ? layout.right_ticks : layout.left_ticks;
  const double x = is_right ? plot.right() : plot.x;
  const double outward = is_right ? 1 : -1;
  const Stroke stroke{theme::kMutedInk, theme::kAxisWidth};
  canvas->Line({x, plot.y}, {x, plot.bottom()}, stroke);
  TextStyle style = kTickStyle;
  style.color = color;
  style.align_x = is_right ? AlignX::kLeft : AlignX::kRight;
  style.align_y = AlignY::kMiddle;
  for (const Tick& tick : ticks) {
    const double y = plot.bottom() - plot.height * scale.Position(tick.value);
    canvas->Line({x, y}, {x + outward * (tick.label.empty() ? 1.5 : 3), y}, stroke);
    canvas->Text({x + outward * kGap, y}, tick.label, style);
  }
  TextStyle label_style = kLabelStyle;
  label_style.color = color;
  label_style.degrees = -90;
  label_style.align_y = is_right ? AlignY::kBottom : AlignY::kTop;
  canvas->Text({is_right ? canvas->width() - kEdge : kEdge, plot.y + plot.height / 2}, label,
               label_style);
}

void DrawXAxis(const Layout& layout, const std::string& label, Canvas* canvas) {
  const Rectangle& plot = layout.plot;
  const Stroke stroke{theme::kMutedInk, theme::kAxisWidth};
  canvas->Line({plot.x, plot.bottom()}, {plot.right(), plot.bottom()}, stroke);
  TextStyle style = kTickStyle;
  style.align_x = AlignX::kCenter;
  for (const Tick& tick : layout.x_ticks) {
    const double x = plot.x + plot.width * layout.x.Position(tick.value);
    canvas->Line({x, plot.bottom()}, {x, plot.bottom() + (tick.label.empty() ? 1.5 : 3)}, stroke);
    canvas->Text({x, plot.bottom() + kGap + theme::kCapitalHeight * theme::kTickSize}, tick.label,
                 style);
  }
  TextStyle label_style = kLabelStyle;
  label_style.align_y = AlignY::kBottom;
  canvas->Text({plot.x + plot.width / 2, canvas->height() - kEdge + 2}, label, label_style);
}

void DrawLegend(const Layout& layout, Canvas* canvas) {
  TextStyle style = kTickStyle;
  style.align_y = AlignY::kMiddle;
  for (const LegendEntry& entry : layout.legend) {
    const double x = layout.legend_x + entry.x;
    const double y = layout.legend_y + entry.y + kLegendRow / 2;
    const Look& look = entry.look;
    if (entry.series->points_only) {
      canvas->FillCircle({x + kLegendSample / 2, y}, theme::kPointRadius, look.color);
    } else {
      canvas->Line({x, y}, {x + kLegendSample, y}, {look.color, look.width, look.dash});
    }
    canvas->Text({x + kLegendSample + kGap, y}, entry.text, style);
  }
}

// Beside the line, at the end and on the side where it hides the fewest drawn points.
void DrawReferenceLabel(const Layout& layout, double y, const std::string& label,
                        const std::vector<Point>& drawn, Canvas* canvas) {
  if (label.empty()) return;
  const Rectangle& plot = layout.plot;
  TextStyle style = kTickStyle;
  style.color = theme::kMutedInk;
  style.align_y = AlignY::kMiddle;
  const double width = canvas->Measure(label, style).width + 4;
  const double height = theme::kTickSize + 3;
  Rectangle best{};
  std::ptrdiff_t fewest = std::numeric_limits<std::ptrdiff_t>::max();
  constexpr int kPlaces = 9;
  for (int place = kPlaces - 1; place >= 0; --place) {
    for (const double top : {y - height - 1, y + 1}) {
      const Rectangle box{plot.x + 2 + (plot.width - width - 4) * place / (kPlaces - 1), top, width,
                          height};
      if (box.y < plot.y || box.bottom() > plot.bottom()) continue;
      const std::ptrdiff_t hidden =
          std::count_if(drawn.begin(), drawn.end(), [&](const Point& point) {
            return point.x > box.x - 2 && point.x < box.right() + 2 && point.y > box.y - 1 &&
                   point.y < box.bottom() + 1;
          });
      if (hidden < fewest) {
        fewest = hidden;
        best = box;
      }
    }
  }
  if (best.width == 0) return;  // a plot too low for a line of text
  if (fewest > 0) canvas->FillRoundedRectangle(best, 2, theme::kPaper.WithAlpha(0.8));
  canvas->Text({best.x + 2, best.y + height / 2}, label, style);
}

void DrawData(const LineChart& chart, const Layout& layout, Canvas* canvas) {
  const Rectangle& plot = layout.plot;
  const auto clip = canvas->ClipTo(plot);
  std::vector<Point> drawn;
  // Faint series first: nothing pale lies over a line.
  for (const bool faint : {true, false}) {
    for (std::size_t i = 0; i < chart.series.size(); ++i) {
      if (chart.series[i].faint != faint) continue;
      DrawSeries(chart, chart.series[i], layout.looks[i], layout, canvas, &drawn);
    }
  }
  for (const ReferenceLine& line : chart.reference_lines) {
    if (!CanShow(line.value, IsLog(chart, line.axis))) continue;
    const double y = layout.Place(layout.x.low, line.value, line.axis).y;
    canvas->Line({plot.x, y}, {plot.right(), y},
                 {theme::kMutedInk, theme::kReferenceWidth, theme::kReferenceDash});
    DrawReferenceLabel(layout, y, line.label, drawn, canvas);
  }
  if (drawn.empty()) {
    TextStyle style = kLabelStyle;
    style.color = theme::kMutedInk;
    style.align_y = AlignY::kMiddle;
    canvas->Text({plot.x + plot.width / 2, plot.y + plot.height / 2}, "no data", style);
  }
}

}  // namespace

void DrawLineChart(const LineChart& chart, const std::filesystem::path& out) {
  Canvas canvas(chart.width, chart.height, out);
  const Layout layout = MakeLayout(canvas, chart);
  DrawGrid(layout, &canvas);
  DrawData(chart, layout, &canvas);
  DrawSideAxis(layout, ChartAxis::kLeft, AxisColor(chart, layout, ChartAxis::kLeft),
               chart.left_label, &canvas);
  if (layout.has_right) {
    DrawSideAxis(layout, ChartAxis::kRight, AxisColor(chart, layout, ChartAxis::kRight),
                 chart.right_label, &canvas);
  }
  DrawXAxis(layout, chart.x_label, &canvas);
  DrawLegend(layout, &canvas);
  canvas.Text(
      {layout.plot.x, kEdge}, chart.title,
      {.size = theme::kTitleSize, .color = theme::kInk, .align_y = AlignY::kTop, .bold = true});
  canvas.Save();
}

}  // namespace clearhead
