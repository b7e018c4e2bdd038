// SPDX-License-Identifier: MIT
#include "figures/lens_figure.h"

#include <algorithm>

#include "figures/canvas.h"
#include "figures/color_scale.h"
#include "figures/theme.h"

namespace clearhead {
namespace {

constexpr double kCellWidth = 46, kCellHeight = 17, kMargin = 10, kNameWidth = 46,
                 kTitleHeight = 22;
constexpr TextStyle kCellText{.size = theme::kTickSize,
                              .color = theme::kInk,
                              .align_x = AlignX::kCenter,
                              .align_y = AlignY::kMiddle};

Color ToColor(const Rgb& rgb) { return {rgb[0] / 255.0, rgb[1] / 255.0, rgb[2] / 255.0}; }

// As much of the text as the cell has room for.
void DrawWord(Canvas* canvas, const Rectangle& cell, const std::string& text, TextStyle style) {
  const Canvas::Clip clip = canvas->ClipTo({cell.x + 1, cell.y, cell.width - 2, cell.height});
  const bool fits = canvas->Measure(text, style).width <= cell.width - 4;
  if (!fits) style.align_x = AlignX::kLeft;
  canvas->Text({fits ? cell.x + cell.width / 2 : cell.x + 2, cell.y + cell.height / 2}, text,
               style);
}

}  // namespace

void DrawLensFigure(const LensFigure& figure, const std::filesystem::path& out) {
  const std::size_t shown = std::min(figure.tokens.size(), kLensColumns);
  const std::size_t first = figure.tokens.size() - shown;
  // Room for the title over few columns, as wide as its letters usually are.
  const double title = 0.65 * theme::kTitleSize * static_cast<double>(figure.title.size());
  const double width =
      2 * kMargin + std::max(title, kNameWidth + kCellWidth * static_cast<double>(shown));
  const double height =
      2 * kMargin + kTitleHeight + kCellHeight * static_cast<double>(figure.rows.size() + 1);
  Canvas canvas(width, height, out);
  canvas.Text({kMargin, kMargin + theme::kTitleSize}, figure.title,
              {.size = theme::kTitleSize, .color = theme::kInk, .bold = true});
  for (std::size_t r = 0; r < figure.rows.size(); ++r) {
    const double y =
        kMargin + kTitleHeight + kCellHeight * static_cast<double>(figure.rows.size() - 1 - r);
    canvas.Text({kMargin + kNameWidth - 6, y + kCellHeight / 2}, figure.rows[r],
                {.size = theme::kTickSize,
                 .color = theme::kMutedInk,
                 .align_x = AlignX::kRight,
                 .align_y = AlignY::kMiddle});
    for (std::size_t c = 0; c < shown; ++c) {
      const LensFigureCell& cell = figure.cells[r][first + c];
      const Rectangle area{kMargin + kNameWidth + kCellWidth * static_cast<double>(c), y,
                           kCellWidth, kCellHeight};
      canvas.FillRectangle(area, ToColor(WeightColor(cell.probability, 1.0)));
      canvas.StrokeRectangle(area, {theme::kMapLine, theme::kGridWidth});
      TextStyle style = kCellText;
      if (cell.probability > 0.5) style.color = theme::kPaper;
      DrawWord(&canvas, area, cell.text, style);
      if (cell.target) {
        canvas.StrokeRectangle({area.x + 1, area.y + 1, area.width - 2, area.height - 2},
                               {theme::kMark, theme::kReferenceWidth});
      }
    }
  }
  const double y = kMargin + kTitleHeight + kCellHeight * static_cast<double>(figure.rows.size());
  for (std::size_t c = 0; c < shown; ++c) {
    TextStyle style = kCellText;
    style.bold = true;
    DrawWord(
        &canvas,
        {kMargin + kNameWidth + kCellWidth * static_cast<double>(c), y, kCellWidth, kCellHeight},
        figure.tokens[first + c], style);
  }
  canvas.Save();
}

}  // namespace clearhead
