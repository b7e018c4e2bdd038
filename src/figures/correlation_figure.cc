// SPDX-License-Identifier: MIT
#include "figures/correlation_figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "figures/color_scale.h"
#include "figures/theme.h"

namespace clearhead {
namespace {

constexpr double kEdge = 6, kTitleRoom = 30, kSectionGap = 12;
constexpr double kLabelRoom = 26;
constexpr double kContentWidth = 450;
constexpr double kMinCell = 3, kMaxCell = 18;
constexpr double kBarRoom = 24, kBarWidth = 120, kBarHeight = 6;
constexpr Color kFrame = Color::Hex(0xaab4c2);

std::vector<std::uint8_t> MatrixPixels(const CorrelationMatrix& matrix) {
  std::vector<std::uint8_t> rgb;
  for (const std::optional<double>& r : matrix.r) {
    const auto grey = static_cast<std::uint8_t>(std::lround(255 * kUndefinedCorrelation.red));
    const Rgb color = r ? CorrelationColor(*r) : Rgb{grey, grey, grey};
    rgb.insert(rgb.end(), color.begin(), color.end());
  }
  return rgb;
}

std::string Caption(const CorrelationMatrix& matrix) {
  if (!matrix.median_magnitude) return "no two heads have a defined correlation";
  std::string text = fmt::format("median |r| {:.2f}, {:.1f} % of pairs above 0.5",
                                 *matrix.median_magnitude, 100 * matrix.share_above_half);
  const auto constant = static_cast<std::int64_t>(matrix.heads.size()) - matrix.defined_heads;
  if (constant > 0) {
    text += fmt::format("; grey: undefined, {} constant head{}", constant, constant > 1 ? "s" : "");
  }
  return text;
}

void DrawLabels(Canvas* canvas, const CorrelationMatrix& matrix, const Rectangle& area,
                double cell) {
  TextStyle style{.size = std::min(7.0, cell * 0.92),
                  .color = theme::kInk,
                  .align_x = AlignX::kRight,
                  .align_y = AlignY::kMiddle};
  for (std::size_t h = 0; h < matrix.heads.size(); ++h) {
    const double at = (static_cast<double>(h) + 0.5) * cell;
    style.degrees = 0;
    canvas->Text({area.x - 2, area.y + at}, ToText(matrix.heads[h]), style);
    style.degrees = -90;
    canvas->Text({area.x + at, area.bottom() + 2}, ToText(matrix.heads[h]), style);
  }
}

void DrawBar(Canvas* canvas, double right, double y) {
  constexpr int kSteps = 121;
  const Rectangle bar{right - kBarWidth, y, kBarWidth, kBarHeight};
  std::vector<std::uint8_t> rgb;
  for (int i = 0; i < kSteps; ++i) {
    const Rgb color = CorrelationColor(2.0 * i / (kSteps - 1) - 1);
    rgb.insert(rgb.end(), color.begin(), color.end());
  }
  canvas->Image(bar, kSteps, 1, rgb);
  canvas->StrokeRectangle(bar, {kFrame, 0.5});
  TextStyle style{
      .size = 7, .color = theme::kInk, .align_x = AlignX::kCenter, .align_y = AlignY::kTop};
  for (const auto& [share, text] : {std::pair{0.0, "−1"}, {0.5, "0"}, {1.0, "1"}}) {
    canvas->Text({bar.x + share * bar.width, bar.bottom() + 1}, text, style);
  }
  style.align_x = AlignX::kRight;
  style.align_y = AlignY::kMiddle;
  canvas->Text({bar.x - 7, bar.y + bar.height / 2}, "Pearson r", style);
}

}  // namespace

CorrelationPage LayoutCorrelations(const std::vector<CorrelationMatrix>& matrices) {
  CorrelationPage page;
  std::size_t most = 1;
  for (const CorrelationMatrix& matrix : matrices) most = std::max(most, matrix.heads.size());
  // Whole pixels of a PNG: no correlation is wider than its neighbour.
  page.cell =
      std::clamp(std::floor(kContentWidth / static_cast<double>(most) * kCorrelationPngScale) /
                     kCorrelationPngScale,
                 kMinCell, kMaxCell);
  double y = kEdge;
  for (const CorrelationMatrix& matrix : matrices) {
    const double extent = page.cell * static_cast<double>(matrix.heads.size());
    page.matrices.push_back({kEdge + kLabelRoom, y + kTitleRoom, extent, extent});
    page.width = std::max(page.width, kEdge + kLabelRoom + extent + kEdge);
    y += kTitleRoom + extent + kLabelRoom + kSectionGap;
  }
  page.width = std::max(page.width, 300.0);  // room for title and caption
  page.height = y - kSectionGap + kBarRoom + kEdge;
  return page;
}

void DrawCorrelations(const std::vector<CorrelationMatrix>& matrices,
                      const std::filesystem::path& out) {
  Check(!matrices.empty(), "a correlation figure needs a matrix");
  const CorrelationPage page = LayoutCorrelations(matrices);
  Canvas canvas(page.width, page.height, out, kCorrelationPngScale);
  for (std::size_t m = 0; m < matrices.size(); ++m) {
    const CorrelationMatrix& matrix = matrices[m];
    const Rectangle& area = page.matrices[m];
    canvas.Text({kEdge, area.y - kTitleRoom + 10}, matrix.label,
                {.size = theme::kTitleSize, .color = theme::kInk, .bold = true});
    canvas.Text({kEdge, area.y - kTitleRoom + 21}, Caption(matrix),
                {.size = 7, .color = theme::kMutedInk});
    const auto n = static_cast<int>(matrix.heads.size());
    canvas.Image(area, n, n, MatrixPixels(matrix));
    canvas.StrokeRectangle(area, {kFrame, 0.5});
    DrawLabels(&canvas, matrix, area, page.cell);
  }
  DrawBar(&canvas, page.width - kEdge - 4, page.height - kBarRoom);
  canvas.Save();
}

}  // namespace clearhead
