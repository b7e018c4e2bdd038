// SPDX-License-Identifier: MIT
// Boxes, arrows and texts of a figure before they are drawn: layouts make them, one function draws
// them, and tests see whether texts keep inside their rooms and arrows end where they should.
#pragma once

#include <string>
#include <vector>

#include "figures/canvas.h"

namespace clearhead {

struct SceneBox {
  Rectangle area{};
  double radius = 0;
  Color fill{};
  Stroke line{};
};

// From the first point to the last, which is the tip.
struct SceneArrow {
  std::vector<Point> path;
  Stroke stroke{};
  double head = 6;  // its length; 0: none
};

struct SceneText {
  std::string text;
  Point at{};
  TextStyle style{};
  Rectangle room{};  // where it has to stay
};

struct Scene {
  double width = 0, height = 0;
  std::vector<SceneBox> boxes;
  std::vector<SceneArrow> arrows;
  std::vector<SceneText> texts;
};

// What the letters of a text take up: from the capitals' height down to the descenders, without
// the leading of the font. Texts that are not turned.
Rectangle InkArea(const Canvas& ruler, const SceneText& text);

// The longest beginning of a text that fits a width, with an ellipsis if something is cut. Cuts
// between characters.
std::string FitText(const Canvas& ruler, std::string text, const TextStyle& style, double width);

// A token as a label: without the space that most tokens start with, line breaks made visible.
std::string TokenLabel(const std::string& token);

void DrawBoxes(Canvas* canvas, const Scene& scene);
void DrawArrows(Canvas* canvas, const Scene& scene);
void DrawTexts(Canvas* canvas, const Scene& scene);

}  // namespace clearhead
