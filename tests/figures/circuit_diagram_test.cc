// SPDX-License-Identifier: MIT
#include "figures/circuit_diagram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/file.h"
#include "figures/circuit_curve.h"
#include "figures/png_pixels.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

using testing::HasSubstr;

// Input, two layers of three heads, logits; head i of the first layer feeds head 2 - i of the
// second.
CircuitDiagram Crossed() {
  CircuitDiagram diagram{.title = "model: 6 heads on copy", .subtitle = "faithfulness 0.91"};
  diagram.rows = {"", "layer 0", "MLP 0", "layer 1", ""};
  diagram.nodes = {{.row = 0, .label = "input"}};
  for (const int row : {1, 3}) {
    for (int h = 0; h < 3; ++h) {
      diagram.nodes.push_back({.row = row,
                               .label = "L" + std::to_string(row / 2) + "H" + std::to_string(h),
                               .note = h == 1 ? "previous token 40 %" : "",
                               .strength = 0.3 * h,
                               .negative = h == 2});
    }
  }
  diagram.nodes.push_back({.row = 4, .label = "logits"});
  for (std::size_t h = 0; h < 3; ++h) {
    diagram.edges.push_back(
        {.from = 1 + h, .to = 6 - h, .strength = 1, .kind = DiagramEdgeKind::kKey});
    diagram.edges.push_back({.from = 4 + h, .to = 7, .strength = 0.5, .negative = h == 2});
  }
  return diagram;
}

TEST(CircuitDiagram, RowsAreArrangedToCrossLess) {
  const CircuitDiagram diagram = Crossed();
  const std::vector<std::vector<std::size_t>> rows = ArrangeRows(diagram);
  std::vector<std::size_t> place(diagram.nodes.size());
  std::size_t nodes = 0;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) place[row[i]] = i;
    nodes += row.size();
  }
  EXPECT_EQ(nodes, diagram.nodes.size());
  EXPECT_TRUE(rows[2].empty());
  for (std::size_t h = 0; h < 3; ++h) EXPECT_EQ(place[1 + h], place[6 - h]);
}

TEST(CircuitDiagram, ShowsEveryBoxAndOnlyTheKindsOfEdgesThereAre) {
  const TemporaryFolder folder;
  DrawCircuitDiagram(Crossed(), folder / "circuit.svg");
  DrawCircuitDiagram(Crossed(), folder / "again.svg");
  const std::string svg = ReadFile(folder / "circuit.svg");
  EXPECT_EQ(svg, ReadFile(folder / "again.svg"));
  DrawCircuitDiagram(Crossed(), folder / "circuit.png");
  CircuitDiagram more = Crossed();
  more.nodes.push_back({.row = 2, .label = "MLP0"});
  DrawCircuitDiagram(more, folder / "more.png");
  const Pixels pixels = ReadPng(folder / "circuit.png"), taller = ReadPng(folder / "more.png");
  EXPECT_GT(taller.height, pixels.height);  // rows without nodes take no room
  EXPECT_EQ(pixels.At(0, 0), 0xffffffu);
  const auto inked = std::count_if(pixels.rgb.begin(), pixels.rgb.end(),
                                   [](std::uint32_t rgb) { return rgb != 0xffffff; });
  EXPECT_GT(inked, static_cast<std::ptrdiff_t>(pixels.rgb.size()) / 20);
}

TEST(CircuitDiagram, OfOneBox) {
  const TemporaryFolder folder;
  CircuitDiagram diagram{.title = "one"};
  diagram.rows = {"layer 0"};
  diagram.nodes = {{.row = 0, .label = "L0H0", .strength = 7}};
  DrawCircuitDiagram(diagram, folder / "one.pdf");
  EXPECT_TRUE(ReadFile(folder / "one.pdf").starts_with("%PDF"));
}

TEST(CircuitCurve, DrawsModelsAndRandomSets) {
  const TemporaryFolder folder;
  CircuitCurveFigure figure{.title = "copy", .element = "heads"};
  figure.series = {{"dense", {0, 1, 2, 3}, {0, 0.2, 0.7, 1}, {1, 2}, {0.1, 0.3}},
                   {"sparse", {0, 1, 2, 3}, {0, 0.95, 1.1, 1}, {1, 2}, {0.2, 0.3}}};
  for (const bool log_sizes : {false, true}) {
    figure.log_sizes = log_sizes;
    DrawCircuitCurve(figure, folder / "curve.svg");
    EXPECT_THAT(ReadFile(folder / "curve.svg"), HasSubstr("<svg"));
  }
}

}  // namespace
}  // namespace clearhead
