// SPDX-License-Identifier: MIT
#include "figures/scatter_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "figures/color_scale.h"
#include "figures/theme.h"

namespace clearhead {
namespace {

constexpr double kEdge = 6, kTitleRoom = 18, kSectionGap = 10;
constexpr double kLeftRoom = 34, kBottomRoom = 24;  // numbers and heads' labels
constexpr double kContentWidth = 460;
constexpr double kMinSide = 46, kMaxSide = 130;
constexpr double kGap = 3;
constexpr double kInset = 3;      // between a cell's frame and its plot
constexpr double kTextRoom = 11;  // for r at the top of a cell

constexpr Color kFrame = Color::Hex(0xc9d0da);
constexpr Color kDot = Color::Hex(0x08306b);
constexpr Color kUndefined = Color::Hex(0xeeeeee);

// "0.83", without the sign of a zero.
std::string Number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  return text == "-0.00" ? "0.00" : text[0] == '-' ? "−" + text.substr(1) : text;
}

void DrawHistogram(Canvas* canvas, const ScatterSection& section, std::size_t h,
                   const Rectangle& cell, const Rectangle& plot) {
  // Counts on a logarithmic scale: nearly all weights of most heads are near 0.
  std::int64_t most = 0;
  for (const std::int64_t count : section.histograms[h]) most = std::max(most, count);
  const double width = plot.width / ScatterSection::kBins;
  for (int bin = 0; bin < ScatterSection::kBins; ++bin) {
    const auto count = static_cast<double>(section.histograms[h][static_cast<std::size_t>(bin)]);
    if (count == 0) continue;
    const double height = plot.height * std::log1p(count) / std::log1p(static_cast<double>(most));
    canvas->FillRectangle({plot.x + bin * width, plot.bottom() - height, width, height},
                          theme::kSeries[4]);
  }
  canvas->Text({cell.x + cell.width / 2, cell.y + 2}, ToText(section.heads[h]),
               {.size = 8,
                .color = theme::kInk,
                .align_x = AlignX::kCenter,
                .align_y = AlignY::kTop,
                .bold = true});
}

void DrawPoints(Canvas* canvas, const ScatterSection& section, std::size_t y, std::size_t x,
                const Rectangle& plot) {
  const std::vector<float>&of_x = section.points[x], &of_y = section.points[y];
  const auto share = [](float value, float largest) { return largest > 0 ? value / largest : 0; };
  const double radius = plot.width > 60 ? 1.2 : 0.9;
  for (std::size_t i = 0; i < of_x.size(); ++i) {
    canvas->FillCircle({plot.x + plot.width * share(of_x[i], section.largest[x]),
                        plot.bottom() - plot.height * share(of_y[i], section.largest[y])},
                       radius, kDot.WithAlpha(0.4));
  }
}

void DrawCounts(Canvas* canvas, const ScatterCell& cell, const Rectangle& plot) {
  constexpr int kBins = ScatterSection::kBins;
  std::int64_t most = 1;
  for (const std::int64_t count : cell.counts) most = std::max(most, count);
  std::vector<std::uint8_t> rgb;
  for (int row = kBins - 1; row >= 0; --row) {  // large weights of y at the top
    for (int column = 0; column < kBins; ++column) {
      const auto count = static_cast<double>(
          cell.counts[static_cast<std::size_t>(row) * kBins + static_cast<std::size_t>(column)]);
      // A single pair must show beside half a million: never paler than a sixth.
      const double depth =
          count == 0 ? 0
                     : std::max(1.0 / 6, std::log1p(count) / std::log1p(static_cast<double>(most)));
      const Rgb color = WeightColor(depth, 1);
      rgb.insert(rgb.end(), color.begin(), color.end());
    }
  }
  canvas->Image(plot, kBins, kBins, rgb);
}

void DrawCell(Canvas* canvas, const ScatterSection& section, const ScatterLayout& layout,
              std::size_t y, std::size_t x) {
  const Rectangle area = layout.Cell(y, x), plot = layout.Plot(y, x);
  const ScatterCell& cell = section.Cell(y, x);
  if (x == y) {
    DrawHistogram(canvas, section, x, area, plot);
  } else {
    if (!cell.pearson) canvas->FillRectangle(area, kUndefined);
    if (cell.counts.empty()) {
      DrawPoints(canvas, section, y, x, plot);
    } else if (cell.pearson) {
      DrawCounts(canvas, cell, plot);
    }
    const std::string text =
        cell.pearson && cell.spearman
            ? fmt::format("r {}  ρ {}", Number(*cell.pearson), Number(*cell.spearman))
            : "r undefined";
    canvas->Text({area.x + area.width / 2, area.y + 2}, text,
                 {.size = std::clamp(area.width * 0.1, 5.0, 7.0),
                  .color = cell.pearson ? theme::kInk : theme::kMutedInk,
                  .align_x = AlignX::kCenter,
                  .align_y = AlignY::kTop});
  }
  canvas->StrokeRectangle(area, {kFrame, 0.5});
}

// Numbers at the left and the bottom, where each head has its axis.
void DrawAxes(Canvas* canvas, const ScatterSection& section, const ScatterLayout& layout) {
  const std::size_t n = section.heads.size();
  TextStyle number{.size = 6, .color = theme::kMutedInk};
  TextStyle label{.size = 7.5, .color = theme::kInk, .align_x = AlignX::kCenter};
  for (std::size_t h = 0; h < n; ++h) {
    const Rectangle left = layout.Plot(h, 0), bottom = layout.Plot(n - 1, h);
    const std::string largest = fmt::format("{:.2g}", section.largest[h]);
    number.align_x = AlignX::kRight;
    number.align_y = AlignY::kMiddle;
    const double x = layout.Cell(h, 0).x - 3;
    canvas->Text({x, left.bottom()}, "0", number);
    canvas->Text({x, left.y}, largest, number);
    number.align_y = AlignY::kTop;
    const double y = layout.Cell(n - 1, h).bottom() + 2;
    number.align_x = AlignX::kLeft;
    canvas->Text({bottom.x, y}, "0", number);
    number.align_x = AlignX::kRight;
    canvas->Text({bottom.right(), y}, largest, number);
    label.align_y = AlignY::kTop;
    label.degrees = 0;
    canvas->Text({bottom.x + bottom.width / 2, y + 8}, ToText(section.heads[h]), label);
    label.align_y = AlignY::kBottom;
    label.degrees = -90;
    canvas->Text({x - 14, left.y + left.height / 2}, ToText(section.heads[h]), label);
  }
}

}  // namespace

Rectangle ScatterLayout::Cell(std::size_t y, std::size_t x) const {
  return {frame.x + static_cast<double>(x) * (side + kGap),
          frame.y + static_cast<double>(y) * (side + kGap), side, side};
}

Rectangle ScatterLayout::Plot(std::size_t y, std::size_t x) const {
  const Rectangle cell = Cell(y, x);
  return {cell.x + kInset, cell.y + kTextRoom + 1, side - 2 * kInset,
          side - kTextRoom - 1 - kInset};
}

ScatterPage LayoutScatter(const std::vector<ScatterSection>& sections) {
  ScatterPage page;
  double y = kEdge;
  for (const ScatterSection& section : sections) {
    const auto n = static_cast<double>(section.heads.size());
    ScatterLayout layout;
    layout.side = std::floor(std::clamp((kContentWidth - (n - 1) * kGap) / n, kMinSide, kMaxSide));
    const double extent = n * layout.side + (n - 1) * kGap;
    layout.frame = {kEdge + kLeftRoom, y + kTitleRoom, extent, extent};
    page.width = std::max(page.width, layout.frame.right() + kEdge);
    y = layout.frame.bottom() + kBottomRoom + kSectionGap;
    page.sections.push_back(layout);
  }
  page.height = y - kSectionGap + kEdge;
  page.width = std::max(page.width, 240.0);  // room for the title
  return page;
}

void DrawScatterMatrix(const std::vector<ScatterSection>& sections,
                       const std::filesystem::path& out) {
  Check(!sections.empty(), "a scatter matrix needs a section");
  const ScatterPage page = LayoutScatter(sections);
  Canvas canvas(page.width, page.height, out, kScatterPngScale);
  for (std::size_t s = 0; s < sections.size(); ++s) {
    const ScatterSection& section = sections[s];
    const ScatterLayout& layout = page.sections[s];
    const double title = layout.frame.y - kTitleRoom + 10;
    canvas.Text({kEdge, title}, section.label,
                {.size = theme::kTitleSize, .color = theme::kInk, .bold = true});
    canvas.Text({layout.frame.right(), title}, fmt::format("{} (query, key) pairs", section.pairs),
                {.size = 7, .color = theme::kMutedInk, .align_x = AlignX::kRight});
    for (std::size_t y = 0; y < section.heads.size(); ++y) {
      for (std::size_t x = 0; x < section.heads.size(); ++x) {
        DrawCell(&canvas, section, layout, y, x);
      }
    }
    DrawAxes(&canvas, section, layout);
  }
  canvas.Save();
}

}  // namespace clearhead
