// SPDX-License-Identifier: MIT
#include "figures/graph_figure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/file.h"
#include "figures/png_pixels.h"
#include "figures/scene_testing.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

using testing::Contains;
using testing::Not;

GraphFigure Small() {
  GraphFigure figure{.title = "model: The opposite of large",
                     .note = "held fixed",
                     .layers = 6,
                     .positions = {3, 2, 1},
                     .nodes = {{GraphRow::kLogit, 3, 0, 0, " small", "57.0 %", 0.57},
                               {GraphRow::kLogit, 3, 0, 0, " big", "12.0 %", 0.12},
                               {GraphRow::kGroup, 2, 0, 3, "large", "20 features", 1},
                               {GraphRow::kGroup, 2, 1, 2, "say small", "2 features", 0.5},
                               {GraphRow::kGroup, 3, 4, 5, "from large", "7 features", 0.7},
                               {GraphRow::kError, 3, 0, 0, "errors", "", 0.1},
                               {GraphRow::kToken, 1, 0, 0, "The", "", 0.1},
                               {GraphRow::kToken, 2, 0, 0, " large", "", 0.4},
                               {GraphRow::kToken, 3, 0, 0, "\"", "", 0.2}},
                     .edges = {{2, 4, 1, 0.2, false},
                               {4, 0, 0.8, 0.1, false},
                               {4, 1, 0.3, 0.1, true},
                               {7, 2, 0.5, 0.1, false},
                               {5, 0, 0.2, 0.1, true},
                               {3, 2, 0.1, 0.1, false}}};
  return figure;
}

GraphFigure Crowded() {
  GraphFigure figure{.title = std::string(400, 'x'),
                     .note = std::string(400, 'y'),
                     .layers = 32,
                     .positions = {},
                     .nodes = {},
                     .edges = {}};
  for (std::int64_t p = 199; p >= 0; --p) {
    figure.positions.push_back(p);
    figure.nodes.push_back({GraphRow::kToken, p, 0, 0, " unquestionably", "", 0.1});
    figure.nodes.push_back({GraphRow::kGroup, p, p % 30, p % 30 + p % 3,
                            "from unquestionably and more", "3 features", 0.5});
    figure.nodes.push_back({GraphRow::kGroup, p, p % 30, p % 30, "x", "1 feature", 0.5});
  }
  for (int i = 0; i < 10; ++i) {
    figure.nodes.push_back({GraphRow::kLogit, 199, 0, 0, " incomprehensibilities", "5.0 %", 0.1});
  }
  for (std::size_t i = 0; i + 3 < figure.nodes.size(); i += 2) {
    figure.edges.push_back({i, i + 3, 0.5, 0.002, i % 4 == 0});
  }
  return figure;
}

TEST(GraphFigure, TextsFitAndBoxesDoNotOverlap) {
  for (const GraphFigure& figure : {Small(), Crowded()}) {
    const GraphLayout layout = LayoutGraphFigure(figure);
    ExpectLegible(layout.scene, 7);
    EXPECT_LE(layout.scene.width, 800);
    for (std::size_t i = 0; i < layout.nodes.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (layout.nodes[i].width == 0 || layout.nodes[j].width == 0) continue;
        EXPECT_FALSE(Overlap(layout.nodes[i], layout.nodes[j])) << i << " " << j;
      }
    }
  }
}

TEST(GraphFigure, LayersRunUpPositionsRunRight) {
  const GraphLayout layout = LayoutGraphFigure(Small());
  const std::vector<Rectangle>& nodes = layout.nodes;
  EXPECT_LT(nodes[0].bottom(), nodes[4].y);  // logits over layers 4-5 over layers 0-3
  EXPECT_LT(nodes[4].bottom(), nodes[2].y);
  EXPECT_GT(nodes[2].height, nodes[4].height);  // as high as its layers
  EXPECT_LT(nodes[2].bottom(), nodes[7].y);     // over the tokens
  EXPECT_LT(nodes[6].x, nodes[7].x);
  EXPECT_LT(nodes[7].x, nodes[8].x);
  for (const char* text :
       {"layer 0", "layer 5", "logits", "tokens", "the rest", "errors", "large", "20 features",
        "raises", "lowers", "6 strong edges between groups, 70 % of all but the bias; held fixed",
        "small", "57.0 %", "1", "3"}) {
    EXPECT_THAT(TextsOf(layout.scene), Contains(text));
  }
  GraphFigure groups_only = Small();
  groups_only.nodes.resize(5);
  groups_only.edges.resize(3);
  const std::vector<std::string> texts = TextsOf(LayoutGraphFigure(groups_only).scene);
  EXPECT_THAT(texts, Not(Contains("the rest")));  // rows that are empty have no name
  EXPECT_THAT(texts, Not(Contains("tokens")));
}

TEST(GraphFigure, EdgesJoinTheirBoxes) {
  const GraphFigure figure = Small();
  const GraphLayout layout = LayoutGraphFigure(figure);
  ASSERT_GE(layout.scene.arrows.size(), figure.edges.size());
  for (std::size_t e = 0; e < figure.edges.size(); ++e) {
    const SceneArrow& arrow = layout.scene.arrows[e];
    const Point first = arrow.path.front(), last = arrow.path.back();
    EXPECT_TRUE(Inside({first.x, first.y, 0, 0}, layout.nodes[figure.edges[e].from])) << e;
    EXPECT_TRUE(Inside({last.x, last.y, 0, 0}, layout.nodes[figure.edges[e].to])) << e;
    EXPECT_EQ(arrow.stroke.dash > 0, figure.edges[e].negative);
  }
  EXPECT_GT(layout.scene.arrows[0].stroke.width, layout.scene.arrows[2].stroke.width);
}

TEST(GraphFigure, PositionsWithoutRoomAreLeftOut) {
  const GraphFigure figure = Crowded();
  const GraphLayout layout = LayoutGraphFigure(figure);
  EXPECT_THAT(TextsOf(layout.scene), Contains("199"));
  EXPECT_THAT(TextsOf(layout.scene), Not(Contains("0")));
  EXPECT_LT(layout.scene.arrows.size(), figure.edges.size() / 2);
}

TEST(GraphFigure, EveryFormatAndTheSameBytes) {
  const TemporaryFolder folder;
  DrawGraphFigure(Small(), folder / "a.svg");
  DrawGraphFigure(Small(), folder / "b.svg");
  DrawGraphFigure(Small(), folder / "a.pdf");
  DrawGraphFigure(Small(), folder / "a.png");
  EXPECT_EQ(ReadFile(folder / "a.svg"), ReadFile(folder / "b.svg"));
  EXPECT_TRUE(ReadFile(folder / "a.pdf").starts_with("%PDF"));
  const Pixels pixels = ReadPng(folder / "a.png");
  const auto inked = std::count_if(pixels.rgb.begin(), pixels.rgb.end(),
                                   [](std::uint32_t rgb) { return rgb != 0xffffff; });
  EXPECT_GT(inked, static_cast<std::ptrdiff_t>(pixels.rgb.size()) / 20);
}

}  // namespace
}  // namespace clearhead
