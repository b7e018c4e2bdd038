// SPDX-License-Identifier: MIT
// What every scene has to keep: texts in their rooms and on the page, none over another.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "figures/scene.h"

namespace clearhead {

inline bool Inside(const Rectangle& part, const Rectangle& whole, double slack = 0.6) {
  return part.x >= whole.x - slack && part.right() <= whole.right() + slack &&
         part.y >= whole.y - slack && part.bottom() <= whole.bottom() + slack;
}

inline bool Overlap(const Rectangle& a, const Rectangle& b, double slack = 0.6) {
  return a.x + slack < b.right() && b.x + slack < a.right() && a.y + slack < b.bottom() &&
         b.y + slack < a.bottom();
}

inline void ExpectLegible(const Scene& scene, double least_size) {
  const Canvas ruler(1, 1, "ruler.svg");
  const Rectangle page{0, 0, scene.width, scene.height};
  std::vector<Rectangle> areas;
  for (const SceneText& text : scene.texts) {
    areas.push_back(InkArea(ruler, text));
    EXPECT_TRUE(Inside(areas.back(), text.room)) << text.text;
    EXPECT_TRUE(Inside(areas.back(), page)) << text.text;
    EXPECT_GE(text.style.size, least_size) << text.text;
  }
  for (std::size_t i = 0; i < areas.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(Overlap(areas[i], areas[j]))
          << '"' << scene.texts[i].text << "\" and \"" << scene.texts[j].text << '"';
    }
  }
  for (const SceneBox& box : scene.boxes) EXPECT_TRUE(Inside(box.area, page));
  for (const SceneArrow& arrow : scene.arrows) {
    for (const Point& point : arrow.path) {
      EXPECT_TRUE(Inside({point.x, point.y, 0, 0}, page));
    }
  }
}

inline std::vector<std::string> TextsOf(const Scene& scene) {
  std::vector<std::string> texts;
  for (const SceneText& text : scene.texts) texts.push_back(text.text);
  return texts;
}

}  // namespace clearhead
