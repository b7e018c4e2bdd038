// SPDX-License-Identifier: MIT
// A circuit drawn layer by layer: boxes in rows from the input at the bottom to the logits at the
// top, curves for what flows between them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "figures/canvas.h"

namespace clearhead {

struct DiagramNode {
  int row = 0;            // from the bottom
  std::string label;      // L5H1
  std::string note;       // a second, smaller line; may be empty
  double strength = 0.0;  // 0 to 1: how dark the box is
  bool negative = false;  // works against the behaviour: another colour
  bool aside = false;     // in a column of its own at the right
};

enum class DiagramEdgeKind { kQuery, kKey, kValue, kOther };

struct DiagramEdge {
  std::size_t from = 0, to = 0;  // nodes; from below to above
  double strength = 0.0;         // 0 to 1: how thick
  DiagramEdgeKind kind = DiagramEdgeKind::kOther;
  bool negative = false;  // dashed
};

struct CircuitDiagram {
  std::string title, subtitle;
  std::vector<std::string> rows;  // names at the left, from the bottom
  std::vector<DiagramNode> nodes;
  std::vector<DiagramEdge> edges;
};

// Rows without nodes take no room. Writes .svg, .pdf or .png.
void DrawCircuitDiagram(const CircuitDiagram& diagram, const std::filesystem::path& out);

// Nodes of a row from left to right, arranged so that few edges cross; exposed for tests.
std::vector<std::vector<std::size_t>> ArrangeRows(const CircuitDiagram& diagram);

}  // namespace clearhead
