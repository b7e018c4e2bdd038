// SPDX-License-Identifier: MIT
#include "figures/scene.h"

#include <array>
#include <cmath>

#include "core/error.h"
#include "figures/theme.h"

namespace clearhead {

Rectangle InkArea(const Canvas& ruler, const SceneText& text) {
  Check(text.style.degrees == 0, "a text that is not turned");
  constexpr double kDescent = 0.22;  // of the usual sans fonts, as a part of the size
  const TextStyle& style = text.style;
  const TextExtents extents = ruler.Measure(text.text, style);
  double x = text.at.x, baseline = text.at.y;
  if (style.align_x == AlignX::kCenter) x -= extents.width / 2;
  if (style.align_x == AlignX::kRight) x -= extents.width;
  if (style.align_y == AlignY::kTop) baseline += extents.ascent;
  if (style.align_y == AlignY::kBottom) baseline -= extents.descent;
  if (style.align_y == AlignY::kMiddle) baseline += theme::kCapitalHeight * style.size / 2;
  const double top = baseline - theme::kCapitalHeight * style.size;
  return {x, top, extents.width, baseline + kDescent * style.size - top};
}

std::string FitText(const Canvas& ruler, std::string text, const TextStyle& style, double width) {
  if (ruler.Measure(text, style).width <= width) return text;
  while (!text.empty() && ruler.Measure(text + "…", style).width > width) {
    while (text.size() > 1 && (text.back() & 0xc0) == 0x80) text.pop_back();
    text.pop_back();
  }
  return text + "…";
}

std::string TokenLabel(const std::string& token) {
  if (!token.empty() && token.find_first_not_of(' ') == std::string::npos) return "␣";
  std::string text;
  for (const char c : token.substr(token.starts_with(' ') ? 1 : 0)) {
    text += c == '\n' ? "↵" : std::string(1, c);
  }
  return text;
}

void DrawBoxes(Canvas* canvas, const Scene& scene) {
  for (const SceneBox& box : scene.boxes) {
    canvas->FillRoundedRectangle(box.area, box.radius, box.fill);
    if (box.line.width > 0) canvas->StrokeRoundedRectangle(box.area, box.radius, box.line);
  }
}

void DrawArrows(Canvas* canvas, const Scene& scene) {
  for (const SceneArrow& arrow : scene.arrows) {
    Check(arrow.path.size() >= 2, "an arrow has two ends");
    std::vector<Point> line = arrow.path;
    const Point tip = line.back();
    // The line ends inside the head, whose tip would else be as blunt as the line is wide.
    if (arrow.head > 0) {
      const Point from = line[line.size() - 2];
      const double length = std::hypot(tip.x - from.x, tip.y - from.y);
      if (length > 0) {
        const double dx = (tip.x - from.x) / length, dy = (tip.y - from.y) / length;
        const double half = 0.42 * arrow.head;
        const Point base{tip.x - arrow.head * dx, tip.y - arrow.head * dy};
        const std::array corners = {tip, Point{base.x - half * dy, base.y + half * dx},
                                    Point{base.x + half * dy, base.y - half * dx}};
        canvas->FillPolygon(corners, arrow.stroke.color);
        line.back() = {tip.x - 0.8 * arrow.head * dx, tip.y - 0.8 * arrow.head * dy};
      }
    }
    canvas->Polyline(line, arrow.stroke);
  }
}

void DrawTexts(Canvas* canvas, const Scene& scene) {
  for (const SceneText& text : scene.texts) canvas->Text(text.at, text.text, text.style);
}

}  // namespace clearhead
