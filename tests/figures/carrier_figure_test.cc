// SPDX-License-Identifier: MIT
#include "figures/carrier_figure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/file.h"
#include "figures/map_drawing.h"
#include "figures/png_pixels.h"
#include "figures/scene_testing.h"
#include "figures/theme.h"
#include "figures/token_columns.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

using testing::Contains;
using testing::Not;

constexpr double kScale = 3;  // pixels per point

CarrierPanel Panel(const std::string& name, std::size_t maps, std::int64_t T,
                   std::int64_t heads_per_layer = 8) {
  CarrierPanel panel{.name = name, .heads = 48, .maps = {}};
  const std::vector<float> weights(static_cast<std::size_t>(T * T), 0.25f);
  for (std::size_t m = 0; m < maps; ++m) {
    const auto head = static_cast<std::int64_t>(m);
    panel.maps.push_back({.map = ReduceMap({head / heads_per_layer, head % heads_per_layer},
                                           weights.data(), T, kCarrierMapCells),
                          .share = 0.3});
  }
  return panel;
}

CarrierFigure PaperFigure() {
  return {
      .tokens = {"<|endoftext|>", "The", " opposite", " of", " \"", "large", "\"", " is", " \""},
      .first_position = 1,
      .query = 8,
      .key = 5,
      .share = 0.8,
      .panels = {Panel("dense", 6, 9), Panel("sparse", 3, 9)},
      .stacks = {{2, 0, 1, "opposite", 0.1},
                 {5, 0, 3, "large", 0.4},
                 {8, 0, 5, " \"", 0.3},
                 {8, 3, 4, "from large", 0.2}},
      .output = " small",
      .output_note = "output, layer 6"};
}

// Long words in many positions, many heads, far more groups than there is room for.
CarrierFigure CrowdedFigure() {
  CarrierFigure figure{
      .tokens = {},
      .first_position = 0,
      .query = 299,
      .key = 17,
      .share = 0.95,
      .panels = {Panel("a model with a long name that cannot fit its panel", 48, 300),
                 Panel("another model with a long name, also far too long", 40, 300, 4)},
      .stacks = {},
      .output = " incomprehensibilities",
      .output_note = "output, layer 48"};
  for (int t = 0; t < 300; ++t) figure.tokens.push_back(" unquestionably" + std::to_string(t));
  for (std::int64_t i = 0; i < 60; ++i) {
    figure.stacks.push_back({i * 5 + 2, i % 7, i % 7 + i % 11, "a group with a rather long name",
                             1.0 / static_cast<double>(i + 1)});
    figure.stacks.push_back({17, i, i, "say unquestionably", 0.5});
  }
  return figure;
}

CarrierFigure OneModel(std::int64_t key, std::int64_t query) {
  CarrierFigure figure = PaperFigure();
  figure.panels.erase(figure.panels.begin());
  figure.stacks.clear();
  figure.first_position = 0;
  figure.key = key;
  figure.query = query;
  return figure;
}

std::vector<CarrierFigure> Figures() {
  std::vector<CarrierFigure> figures = {PaperFigure(),  CrowdedFigure(), OneModel(5, 8),
                                        OneModel(0, 0), OneModel(8, 8),  OneModel(7, 8)};
  figures.push_back(OneModel(0, 0));
  figures.back().tokens = {"x"};
  figures.back().panels = {Panel("m", 1, 1)};
  figures.push_back(PaperFigure());  // a head of twelve layers of twelve, names of six letters
  figures.back().panels = {Panel("gpt2", 30, 9, 2), Panel("sparse", 5, 9, 1)};
  for (CarrierMap& map : figures.back().panels[1].maps) map.map.head = {11, 11};
  return figures;
}

TEST(CarrierFigure, TextsFitAndDoNotOverlap) {
  for (const CarrierFigure& figure : Figures()) {
    SCOPED_TRACE(figure.panels[0].name + " " + std::to_string(figure.key));
    const CarrierLayout layout = LayoutCarrierFigure(figure);
    // 5 points where the page is 8.5 cm wide.
    ExpectLegible(layout.scene, 5.0 * layout.scene.width / (85 * 72 / 25.4));
    for (const auto& panel : layout.maps) {
      for (std::size_t i = 0; i < panel.size(); ++i) {
        EXPECT_TRUE(Inside(panel[i], {0, 0, layout.scene.width, layout.scene.height}));
        EXPECT_GE(panel[i].width, 18);
        for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(Overlap(panel[i], panel[j]));
      }
    }
  }
}

bool Touches(const Point& point, const Rectangle& box, double slack = 1.5) {
  return Inside({point.x, point.y, 0, 0}, box, slack) &&
         !Inside({point.x, point.y, 0, 0}, box, -slack);
}

TEST(CarrierFigure, ArrowsEndWhereTheyShould) {
  for (const CarrierFigure& figure : Figures()) {
    SCOPED_TRACE(figure.panels[0].name + " " + std::to_string(figure.key));
    const CarrierLayout layout = LayoutCarrierFigure(figure);
    const auto count = [&](const Rectangle& from, const Rectangle& to) {
      return std::count_if(
          layout.scene.arrows.begin(), layout.scene.arrows.end(), [&](const SceneArrow& arrow) {
            return Touches(arrow.path.front(), from) && Touches(arrow.path.back(), to);
          });
    };
    const bool same = figure.key == figure.query;
    EXPECT_EQ(count(layout.key, layout.heads), same ? 3 : 2);  // what is carried, and K (and Q)
    EXPECT_EQ(count(layout.query, layout.heads), same ? 3 : 1);
    EXPECT_EQ(count(layout.heads, layout.output), 1);
    // K and Q at every map of the last panel, in line with the marked cell.
    const std::vector<Rectangle>& maps = layout.maps.back();
    for (std::size_t m = 0; m < maps.size(); ++m) {
      const Rectangle mark =
          MarkArea(figure.panels.back().maps[m].map, maps[m], {figure.query, figure.key});
      const double x = mark.x + mark.width / 2, y = mark.y + mark.height / 2;
      const auto points_at = [&](const Point& at) {
        return std::count_if(layout.scene.arrows.begin(), layout.scene.arrows.end(),
                             [&](const SceneArrow& arrow) {
                               const Point tip = arrow.path.back();
                               return std::hypot(tip.x - at.x, tip.y - at.y) < 1;
                             });
      };
      EXPECT_EQ(points_at({x, maps[m].bottom()}), 1) << m;
      EXPECT_EQ(points_at({maps[m].x, y}), 1) << m;
    }
  }
}

TEST(CarrierFigure, SaysWhatItShows) {
  const CarrierLayout layout = LayoutCarrierFigure(PaperFigure());
  const std::vector<std::string> texts = TextsOf(layout.scene);
  for (const char* text : {"dense", "6 of 48 heads carry 80 %", "sparse",
                           "3 of 48 heads carry 80 %", "all heads map key pos 5 to query pos 8",
                           "modulated at 80 % by", "opposite", "layers 0-1", "large", "layers 0-3",
                           "from large", "small", "output, layer 6", "K", "Q", "1", "8", "L0H2"}) {
    EXPECT_THAT(texts, Contains(text));
  }
  EXPECT_THAT(texts, Not(Contains("0")));                     // begin-of-text is left out
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "K"), 4);  // three maps and the arrow
  EXPECT_LT(layout.key.y, layout.query.y + 60);
  EXPECT_LT(layout.output.bottom(), layout.heads.y);
  EXPECT_LT(layout.heads.bottom(), std::min(layout.key.y, layout.query.y));
}

TEST(CarrierFigure, LongPromptsKeepThePair) {
  const CarrierLayout layout = LayoutCarrierFigure(CrowdedFigure());
  const std::vector<std::string> texts = TextsOf(layout.scene);
  EXPECT_THAT(texts, Contains("17"));
  EXPECT_THAT(texts, Contains("299"));
  EXPECT_THAT(texts, Contains("…"));
  EXPECT_THAT(texts, Contains(testing::MatchesRegex("and [0-9]+ more")));
}

TEST(CarrierFigure, MarksTheCellOfEveryMap) {
  const TemporaryFolder folder;
  const CarrierFigure figure = PaperFigure();
  DrawCarrierFigure(figure, folder / "figure.png");
  const CarrierLayout layout = LayoutCarrierFigure(figure);
  const Pixels pixels = ReadPng(folder / "figure.png");
  for (std::size_t p = 0; p < 2; ++p) {
    for (std::size_t m = 0; m < layout.maps[p].size(); ++m) {
      const Rectangle mark =
          MarkArea(figure.panels[p].maps[m].map, layout.maps[p][m], {figure.query, figure.key});
      const auto at = [&](double x, double y) {
        return pixels.At(static_cast<int>(x * kScale), static_cast<int>(y * kScale));
      };
      const std::uint32_t line = at(mark.x + 0.02, mark.y + mark.height / 2);
      EXPECT_GT(line >> 16, 0xa0u);   // red
      EXPECT_LT(line & 0xff, 0x60u);  // and little blue
      const std::uint32_t inside = at(mark.x + mark.width / 2, mark.y + mark.height / 2);
      EXPECT_LT(inside >> 16, inside & 0xff);  // the weight's blue
    }
  }
}

TEST(CarrierFigure, EveryFormatAndTheSameBytes) {
  const TemporaryFolder folder;
  DrawCarrierFigure(PaperFigure(), folder / "a.svg");
  DrawCarrierFigure(PaperFigure(), folder / "b.svg");
  DrawCarrierFigure(PaperFigure(), folder / "a.pdf");
  EXPECT_EQ(ReadFile(folder / "a.svg"), ReadFile(folder / "b.svg"));
  EXPECT_TRUE(ReadFile(folder / "a.pdf").starts_with("%PDF"));
}

TEST(TokenColumns, GapsStandForWhatDoesNotFit) {
  const std::vector<double> widths(10, 20.0);
  const std::vector<std::int64_t> order = {9, 0, 1, 8, 2, 3, 4, 5, 6, 7};
  const std::vector<TokenColumn> columns = ArrangeColumns(widths, order, 2, 5, 120);
  std::vector<std::int64_t> positions;
  for (const TokenColumn& column : columns) positions.push_back(column.position);
  EXPECT_THAT(positions, testing::ElementsAre(0, 1, 2, -1, 8, 9));
  EXPECT_DOUBLE_EQ(columns.front().x, 5);
  EXPECT_NEAR(columns.back().x + columns.back().width, 125, 1e-9);
  EXPECT_EQ(ArrangeColumns(widths, order, 2, 0, 1000).size(), 10u);
  EXPECT_EQ(ArrangeColumns(widths, order, 2, 0, 10).size(), 3u);  // the two that must be there
  EXPECT_FALSE(ColumnOf(columns, 5).has_value());
}

TEST(Scene, TextsAreCutBetweenCharacters) {
  const Canvas ruler(1, 1, "ruler.svg");
  const TextStyle style{.size = 8, .color = theme::kInk};
  EXPECT_EQ(FitText(ruler, "short", style, 100), "short");
  for (double width = 8; width < 60; width += 3) {
    const std::string cut = FitText(ruler, "äöüäöüäöüäöü", style, width);
    EXPECT_LE(ruler.Measure(cut, style).width, width);
    EXPECT_EQ((cut.size() - 3) % 2, 0u) << cut;  // whole letters of two bytes, then the ellipsis
  }
  EXPECT_EQ(TokenLabel(" large"), "large");
  EXPECT_EQ(TokenLabel("  "), "␣");
  EXPECT_EQ(TokenLabel("a\nb"), "a↵b");
}

}  // namespace
}  // namespace clearhead
