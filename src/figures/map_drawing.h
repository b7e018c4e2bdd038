// SPDX-License-Identifier: MIT
// One attention map as every figure shows it: queries run down, keys run right.
#pragma once

#include "figures/canvas.h"
#include "heads/head_map.h"

namespace clearhead {

struct GridMark {
  std::int64_t query = 0, key = 0;
};

// The weights, weight^gamma of the way from white to dark blue, in a thin frame around `area`.
void DrawMap(Canvas* canvas, const HeadMap& map, const Rectangle& area, double gamma);

// The square around the marked cell; at least large enough to be seen.
Rectangle MarkArea(const HeadMap& map, const Rectangle& area, const GridMark& mark);
void DrawMark(Canvas* canvas, const HeadMap& map, const Rectangle& area, const GridMark& mark);

}  // namespace clearhead
