// SPDX-License-Identifier: MIT
#include "figures/head_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "core/error.h"
#include "core/file.h"
#include "core/random.h"
#include "figures/color_scale.h"
#include "figures/png_pixels.h"
#include "heads/head_list.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

std::uint32_t Packed(const Rgb& c) {
  return static_cast<std::uint32_t>(c[0]) << 16 | static_cast<std::uint32_t>(c[1]) << 8 | c[2];
}

// Every weight different, and weights in the future that must not be drawn.
HeadMap TestMap(HeadId head, std::int64_t T) {
  HeadMap map{.head = head, .length = T, .block = 1, .cells = T};
  for (std::int64_t i = 0; i < T; ++i) {
    for (std::int64_t j = 0; j < T; ++j) {
      const auto hash =
          HashCoordinates(3, {static_cast<std::uint64_t>(head.layer * 100 + head.head),
                              static_cast<std::uint64_t>(i * T + j)});
      map.weights.push_back(static_cast<float>(ToUniform(hash)));
    }
  }
  return map;
}

HeadGrid TestGrid(std::int64_t T, std::vector<std::size_t> counts) {
  HeadGrid grid;
  for (std::size_t p = 0; p < counts.size(); ++p) {
    GridPanel& panel = grid.panels.emplace_back();
    panel.title = p == 0 ? "GPT2" : "Sparse GPT2";
    for (std::size_t m = 0; m < counts[p]; ++m) {
      panel.maps.push_back(
          TestMap({static_cast<std::int64_t>(m) / 3, static_cast<std::int64_t>(m) % 3}, T));
    }
    for (std::int64_t t = 0; t < T; ++t) panel.tokens.push_back(" t" + std::to_string(t));
  }
  return grid;
}

struct Drawn {
  GridLayout layout;
  Pixels pixels;
};

Drawn Draw(const HeadGrid& grid) {
  const TemporaryFolder folder;
  DrawHeadGrid(grid, folder / "grid.png");
  std::vector<std::size_t> counts;
  std::int64_t longest = 0;
  for (const GridPanel& panel : grid.panels) {
    counts.push_back(panel.maps.size());
    longest = std::max(longest, panel.maps[0].length);
  }
  return {LayoutGrid(grid, counts, longest), ReadPng(folder / "grid.png")};
}

// The pixel in the middle of a cell.
std::uint32_t CellColor(const Drawn& drawn, const Rectangle& area, std::int64_t cells,
                        std::int64_t query, std::int64_t key) {
  const double unit = area.width / static_cast<double>(cells);
  const double x = area.x + (static_cast<double>(key) + 0.5) * unit;
  const double y = area.y + (static_cast<double>(query) + 0.5) * unit;
  return drawn.pixels.At(static_cast<int>(x * kGridPngScale), static_cast<int>(y * kGridPngScale));
}

TEST(HeadGrid, QueriesRunDownKeysRunRight) {
  constexpr std::int64_t T = 6;
  for (const double gamma : {1.0, 0.5}) {
    HeadGrid grid = TestGrid(T, {5, 3});
    grid.columns = 3;
    grid.gamma = gamma;
    const Drawn drawn = Draw(grid);
    EXPECT_EQ(drawn.pixels.width, std::ceil(drawn.layout.width * kGridPngScale));
    for (std::size_t p = 0; p < 2; ++p) {
      for (std::size_t m = 0; m < grid.panels[p].maps.size(); ++m) {
        const HeadMap& map = grid.panels[p].maps[m];
        for (std::int64_t i = 0; i < T; ++i) {
          for (std::int64_t j = 0; j <= i; ++j) {
            EXPECT_EQ(CellColor(drawn, drawn.layout.maps[p][m], T, i, j),
                      Packed(WeightColor(map.weights[static_cast<std::size_t>(i * T + j)], gamma)))
                << "panel " << p << " map " << m << " query " << i << " key " << j;
          }
        }
      }
    }
  }
}

TEST(HeadGrid, ColoursAreLinearFromWhiteToDarkBlue) {
  EXPECT_EQ(Packed(WeightColor(0, 1)), 0xffffffu);
  EXPECT_EQ(Packed(WeightColor(1, 1)), 0x08306bu);
  EXPECT_EQ(Packed(WeightColor(0.5, 1)), 0x8498b5u);
  EXPECT_EQ(WeightColor(0.25, 0.5), WeightColor(0.5, 1));
  EXPECT_EQ(Packed(WeightColor(1.0001, 1)), 0x08306bu);
}

bool IsInk(std::uint32_t rgb) {
  return (rgb & 255) < 128 && (rgb >> 8 & 255) < 128 && (rgb >> 16) < 128;
}

// Dark pixels in a rectangle given in points.
int InkIn(const Pixels& pixels, double x0, double y0, double x1, double y1) {
  int ink = 0;
  for (int y = static_cast<int>(y0 * kGridPngScale); y < static_cast<int>(y1 * kGridPngScale);
       ++y) {
    for (int x = static_cast<int>(x0 * kGridPngScale); x < static_cast<int>(x1 * kGridPngScale);
         ++x) {
      ink += IsInk(pixels.At(x, y));
    }
  }
  return ink;
}

TEST(HeadGrid, TheFutureIsWhiteButForTheLabel) {
  HeadGrid grid = TestGrid(7, {9});
  for (HeadMap& map : grid.panels[0].maps) std::fill(map.weights.begin(), map.weights.end(), 0.0f);
  const Drawn drawn = Draw(grid);
  for (const Rectangle& area : drawn.layout.maps[0]) {
    // The label is in the upper right quarter...
    EXPECT_GT(InkIn(drawn.pixels, area.x + area.width / 2, area.y, area.right(),
                    area.y + area.height / 4),
              20);
    // ... and nothing is anywhere else inside the map.
    EXPECT_EQ(InkIn(drawn.pixels, area.x + 1, area.y + area.height / 3, area.right() - 1,
                    area.bottom() - 1),
              0);
    EXPECT_EQ(
        InkIn(drawn.pixels, area.x + 1, area.y + 1, area.x + area.width / 4, area.bottom() - 1), 0);
    for (int query = 2; query < 7; ++query) {
      for (int key = 0; key < 7; ++key) {
        EXPECT_EQ(CellColor(drawn, area, 7, query, key), 0xffffffu) << query << " " << key;
      }
    }
  }
}

TEST(HeadGrid, TheMarkIsARedSquareAroundItsCell) {
  constexpr std::int64_t T = 9;
  HeadGrid grid = TestGrid(T, {4});
  grid.mark = GridMark{8, 5};
  const Drawn drawn = Draw(grid);
  for (std::size_t m = 0; m < 4; ++m) {
    const Rectangle& area = drawn.layout.maps[0][m];
    const double unit = area.width / T;
    const auto at = [&](double key, double query) {
      return drawn.pixels.At(
          static_cast<int>(std::lround((area.x + key * unit) * kGridPngScale)),
          static_cast<int>(std::lround((area.y + query * unit) * kGridPngScale)));
    };
    const auto red = [](std::uint32_t rgb) { return (rgb >> 16) > 180 && (rgb & 0xff) < 90; };
    EXPECT_TRUE(red(at(5, 8.5))) << m;
    EXPECT_TRUE(red(at(6, 8.5))) << m;
    EXPECT_TRUE(red(at(5.5, 8))) << m;
    EXPECT_FALSE(red(at(8, 5.5))) << m;  // not the transposed cell
    // The cell itself shows its weight.
    EXPECT_EQ(CellColor(drawn, area, T, 8, 5),
              Packed(WeightColor(grid.panels[0].maps[m].weights[8 * T + 5], 1)));
  }
}

TEST(HeadGrid, ASingleEdgeOfALongInputIsVisible) {
  constexpr std::int64_t T = 1024;
  HeadGrid grid;
  grid.panels.emplace_back().title = "long";
  const std::vector<std::size_t> counts = {144};
  grid.columns = 12;
  const GridLayout layout = LayoutGrid(grid, counts, T);
  std::vector<float> map(T * T, 0.0f);
  for (std::int64_t h = 0; h < 144; ++h) {
    const std::int64_t query = 7 * h + 15, key = query / 2;
    map[static_cast<std::size_t>(query * T + key)] = 1.0f;
    grid.panels[0].maps.push_back(ReduceMap({h / 12, h % 12}, map.data(), T, layout.max_cells));
    map[static_cast<std::size_t>(query * T + key)] = 0.0f;
  }
  const Drawn drawn = Draw(grid);
  for (std::size_t h = 0; h < 144; ++h) {
    const Rectangle& area = layout.maps[0][h];
    int full = 0;
    const auto pixel = [](double points) { return static_cast<int>(points * kGridPngScale); };
    for (int y = pixel(area.y); y < pixel(area.bottom()); ++y) {
      for (int x = pixel(area.x); x < pixel(area.right()); ++x) {
        full += drawn.pixels.At(x, y) == 0x08306bu;
      }
    }
    EXPECT_GE(full, 1) << h;
    EXPECT_LE(full, 9) << h;
  }
}

TEST(HeadGrid, SixtyOneAboveNine) {
  // A chosen order of 61 heads of a 12 x 12 model above nine of its twin: seven rows and one row of
  // nine columns, without asking for columns.
  std::vector<HeadId> all = AllHeads(12, 12);
  RandomStream random(61);
  for (std::size_t i = 0; i < 61; ++i) std::swap(all[i], all[i + random.Below(all.size() - i)]);
  HeadGrid grid;
  for (const auto& [title, first, count] :
       {std::tuple{"GPT2", 0, 61}, std::tuple{"Sparse GPT2", 61, 9}}) {
    GridPanel& panel = grid.panels.emplace_back();
    panel.title = title;
    for (int m = first; m < first + count; ++m) {
      HeadMap map = TestMap(all[static_cast<std::size_t>(m)], 6);
      std::fill(map.weights.begin(), map.weights.end(), 0.0f);
      panel.maps.push_back(map);
    }
  }
  const Drawn drawn = Draw(grid);
  const GridLayout& layout = drawn.layout;
  EXPECT_EQ(layout.columns, 9);
  ASSERT_EQ(layout.maps[0].size(), 61u);
  ASSERT_EQ(layout.maps[1].size(), 9u);
  for (std::size_t m = 0; m < 61; ++m) {
    // Reading order: row by row, nine in each.
    EXPECT_EQ(layout.maps[0][m].x, layout.maps[0][m % 9].x);
    EXPECT_EQ(layout.maps[0][m].y, layout.maps[0][m / 9 * 9].y);
    EXPECT_EQ(layout.maps[0][m].width, layout.maps[0][m].height);
  }
  EXPECT_GT(layout.maps[0][54].y, layout.maps[0][53].y);  // the seventh row
  EXPECT_EQ(layout.maps[0][60].y, layout.maps[0][54].y);
  EXPECT_LT(layout.panels[0].bottom(), layout.panels[1].y);
  EXPECT_EQ(layout.panels[0].width, layout.panels[1].width);
  for (const Rectangle& map : layout.maps[1]) EXPECT_EQ(map.y, layout.maps[1][0].y);

  // The labels stand in the given order: each map's corner looks exactly like the same label drawn
  // alone, and different labels look different.
  const auto corner = [&](const Pixels& pixels, const Rectangle& area) {
    std::vector<std::uint32_t> result;
    const auto x0 = static_cast<int>((area.x + 12) * kGridPngScale),
               y0 = static_cast<int>(area.y * kGridPngScale);
    for (int y = y0 + 3; y < y0 + 30; ++y) {
      for (int x = x0; x < static_cast<int>(area.right() * kGridPngScale) - 3; ++x) {
        result.push_back(pixels.At(x, y));
      }
    }
    return result;
  };
  for (std::size_t p = 0; p < 2; ++p) {
    std::vector<std::vector<std::uint32_t>> corners;
    for (std::size_t m = 0; m < grid.panels[p].maps.size(); ++m) {
      corners.push_back(corner(drawn.pixels, layout.maps[p][m]));
    }
    for (std::size_t m = 0; m < corners.size(); ++m) {
      HeadGrid alone = grid;  // the same page with this head everywhere
      if (m % 7 != 0) continue;
      for (HeadMap& map : alone.panels[p].maps) map.head = grid.panels[p].maps[m].head;
      const Drawn same = Draw(alone);
      EXPECT_EQ(corner(same.pixels, layout.maps[p][m]), corners[m]) << m;
      const std::size_t next = (m + 1) % corners.size();
      EXPECT_NE(corner(same.pixels, layout.maps[p][next]), corners[next]) << m;
    }
  }
}

TEST(HeadGrid, ColumnsBalanceThePage) {
  EXPECT_EQ(BalancedColumns({61, 9}), 9);
  EXPECT_EQ(BalancedColumns({1}), 1);
  EXPECT_EQ(BalancedColumns({144}), 12);
  for (const std::size_t count : {2u, 5u, 7u, 12u, 30u, 97u, 500u}) {
    const int columns = BalancedColumns({count});
    EXPECT_GE(columns, 1);
    EXPECT_LE(columns, static_cast<int>(count));
  }
}

TEST(HeadGrid, AwkwardSizes) {
  const TemporaryFolder folder;
  for (const std::int64_t T : {1, 2, 3, 31}) {
    for (const bool ticks : {false, true}) {
      HeadGrid grid = TestGrid(T, {1, 2});
      grid.ticks = ticks;
      grid.color_bar = true;
      for (const char* name : {"a.png", "a.svg", "a.pdf"}) DrawHeadGrid(grid, folder / name);
      const Drawn drawn = Draw(grid);
      EXPECT_EQ(drawn.layout.labels_inside, T >= 3);
      const auto color = CellColor(drawn, drawn.layout.maps[1][1], T, T - 1, 0);
      EXPECT_EQ(color,
                Packed(WeightColor(
                    grid.panels[1].maps[1].weights[static_cast<std::size_t>((T - 1) * T)], 1)));
      for (const Rectangle& map : drawn.layout.maps[1]) {
        EXPECT_LE(map.right(), drawn.layout.panels[1].right());
        EXPECT_LE(map.bottom(), drawn.layout.panels[1].bottom());
      }
    }
  }
}

// The mean difference of the worst 12 x 12 block of pixels, 0 to 255: rounding at edges of glyphs
// spreads thin, a moved label or a swapped cell is a block of its own.
double WorstBlock(const Pixels& a, const Pixels& b) {
  if (a.width != b.width || a.height != b.height) return 255;
  constexpr int kBlock = 12;
  double worst = 0;
  for (int y0 = 0; y0 < a.height; y0 += kBlock) {
    for (int x0 = 0; x0 < a.width; x0 += kBlock) {
      double sum = 0, count = 0;
      for (int y = y0; y < std::min(y0 + kBlock, a.height); ++y) {
        for (int x = x0; x < std::min(x0 + kBlock, a.width); ++x) {
          for (const int shift : {0, 8, 16}) {
            sum += std::abs(static_cast<int>(a.At(x, y) >> shift & 255) -
                            static_cast<int>(b.At(x, y) >> shift & 255));
            count += 1;
          }
        }
      }
      worst = std::max(worst, sum / count);
    }
  }
  return worst;
}

TEST(HeadGrid, LooksLikeTheGoldenImage) {
  constexpr double kTolerance = 12;
  // Places depend on the font; the golden image was drawn with DejaVu Sans.
  constexpr double kWidth = 92.720;
  const Canvas ruler(1, 1, "ruler.svg");
  const double width = ruler.Measure("Sparse GPT2 L0H0", {.size = 10, .color = {}}).width;
  if (std::abs(width - kWidth) > 0.01 * kWidth) {
    GTEST_SKIP() << "text is " << width << " points wide, " << kWidth
                 << " in the golden image: other fonts";
  }
  HeadGrid grid = TestGrid(6, {4, 2});
  grid.columns = 4;
  grid.ticks = true;
  grid.color_bar = true;
  grid.mark = GridMark{4, 2};
  const std::filesystem::path golden =
      std::filesystem::path(CLEARHEAD_TEST_DATA) / "figures/head_grid.png";
  if (std::getenv("CLEARHEAD_UPDATE_GOLDEN") != nullptr) DrawHeadGrid(grid, golden);
  const Pixels expected = ReadPng(golden);
  EXPECT_LE(WorstBlock(Draw(grid).pixels, expected), kTolerance);

  // What the tolerance must not accept.
  HeadGrid swapped = grid;
  for (GridPanel& panel : swapped.panels) {
    for (HeadMap& map : panel.maps) {
      for (std::int64_t i = 0; i < 6; ++i) {
        for (std::int64_t j = 0; j < i; ++j) {  // the cells mirrored at the anti-diagonal
          map.weights[static_cast<std::size_t>(i * 6 + j)] =
              grid.panels[0].maps[0].weights[static_cast<std::size_t>((5 - j) * 6 + 5 - i)];
        }
      }
    }
  }
  EXPECT_GT(WorstBlock(Draw(swapped).pixels, expected), 2 * kTolerance);
  HeadGrid relabelled = grid;
  std::swap(relabelled.panels[0].maps[1].head, relabelled.panels[0].maps[2].head);
  EXPECT_GT(WorstBlock(Draw(relabelled).pixels, expected), 2 * kTolerance);
  HeadGrid moved = grid;
  moved.mark = GridMark{4, 3};
  EXPECT_GT(WorstBlock(Draw(moved).pixels, expected), 2 * kTolerance);
  // A label that sits three points lower.
  Pixels shifted = expected;
  const GridLayout layout = LayoutGrid(grid, {4, 2}, 6);
  const Rectangle& area = layout.maps[0][0];
  for (int y = static_cast<int>((area.y + 20) * 3); y > static_cast<int>(area.y * 3) + 12; --y) {
    for (int x = static_cast<int>((area.x + area.width / 2) * 3);
         x < static_cast<int>(area.right() * 3) - 3; ++x) {
      shifted.rgb[static_cast<std::size_t>(y * shifted.width + x)] = expected.At(x, y - 9);
    }
  }
  EXPECT_GT(WorstBlock(shifted, expected), 2 * kTolerance);
}

}  // namespace
}  // namespace clearhead
