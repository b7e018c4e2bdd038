// SPDX-License-Identifier: MIT
// An attribution graph of groups as a picture: layers from the bottom up, positions from left to
// right, the logits on top, the strongest edges as curves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "figures/scene.h"

namespace clearhead {

// Rows from the bottom: tokens; features in no group and, at their right, errors; layers; logits.
enum class GraphRow { kToken, kError, kOther, kGroup, kLogit };

struct GraphFigureNode {
  GraphRow row = GraphRow::kGroup;
  std::int64_t position = 0;
  std::int64_t first_layer = 0, last_layer = 0;  // of groups
  std::string label;                             // large
  std::string note;                              // a second line if there is room: "7 features"
  double strength = 0.0;                         // 0 to 1: how dark the box is
};

struct GraphFigureEdge {
  std::size_t from = 0, to = 0;  // nodes
  double strength = 0.0;         // 0 to 1: how thick
  double share = 0.0;            // of all edges there are: the page tells how much it shows
  bool negative = false;         // dashed
};

struct GraphFigure {
  std::string title, note;  // the note follows what is said about the edges
  std::int64_t layers = 0;
  // Positions from the most important down; long prompts show as many as fit.
  std::vector<std::int64_t> positions;
  std::vector<GraphFigureNode> nodes;
  std::vector<GraphFigureEdge> edges;
};

struct GraphLayout {
  Scene scene;                   // arrows are the edges between shown nodes, in their order
  std::vector<Rectangle> nodes;  // of width 0 where the position is not shown
};
GraphLayout LayoutGraphFigure(const GraphFigure& figure);

// Writes .svg, .pdf or .png.
void DrawGraphFigure(const GraphFigure& figure, const std::filesystem::path& out);

}  // namespace clearhead
