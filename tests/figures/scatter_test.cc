// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>

#include "core/file.h"
#include "core/random.h"
#include "figures/color_scale.h"
#include "figures/correlation_figure.h"
#include "figures/png_pixels.h"
#include "figures/scatter_matrix.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

// Head 1 is head 0 squared, head 2 is empty.
PairWeights TestPairs(std::int64_t length) {
  PairWeights pairs{.heads = {{0, 0}, {4, 11}, {11, 0}},
                    .length = length,
                    .pairs = length * (length + 1) / 2 - 1};
  pairs.weights = Buffer<float>(3 * pairs.pairs);
  RandomStream random(1);
  for (std::int64_t p = 0; p < pairs.pairs; ++p) {
    const double w = random.Uniform();
    pairs.weights[p] = static_cast<float>(w);
    pairs.weights[pairs.pairs + p] = static_cast<float>(w * w);
    pairs.weights[2 * pairs.pairs + p] = 0.0f;
  }
  return pairs;
}

int Differing(const Pixels& pixels, const Rectangle& area, std::uint32_t color) {
  int count = 0;
  for (double y = area.y + 1; y < area.bottom() - 1; y += 1 / kScatterPngScale) {
    for (double x = area.x + 1; x < area.right() - 1; x += 1 / kScatterPngScale) {
      count += pixels.At(static_cast<int>(x * kScatterPngScale),
                         static_cast<int>(y * kScatterPngScale)) != color;
    }
  }
  return count;
}

TEST(ScatterMatrix, PlotsXAgainstY) {
  for (const std::int64_t length : {30, 90}) {  // as points and as counts
    const TemporaryFolder folder;
    const std::vector<ScatterSection> sections = {Scatter(TestPairs(length), "A"),
                                                  Scatter(TestPairs(length), "B")};
    for (const char* name : {"s.png", "s.svg", "s.pdf"}) DrawScatterMatrix(sections, folder / name);
    const Pixels pixels = ReadPng(folder / "s.png");
    const ScatterPage page = LayoutScatter(sections);
    EXPECT_EQ(pixels.width, std::ceil(page.width * kScatterPngScale));
    for (const ScatterLayout& layout : page.sections) {
      // y = x^2 hangs below the diagonal: the upper left half of the plot is empty, the curve is
      // not.
      const Rectangle below = layout.Plot(1, 0), above = layout.Plot(0, 1);
      const auto quarter = [](const Rectangle& r, bool right, bool bottom) {
        return Rectangle{r.x + (right ? 0.55 : 0.05) * r.width,
                         r.y + (bottom ? 0.6 : 0.1) * r.height, 0.35 * r.width, 0.35 * r.height};
      };
      EXPECT_EQ(Differing(pixels, quarter(below, false, false), 0xffffffu), 0);
      EXPECT_GT(Differing(pixels, quarter(below, true, false), 0xffffffu), 50);
      EXPECT_EQ(Differing(pixels, quarter(above, true, true), 0xffffffu), 0);
      EXPECT_GT(Differing(pixels, quarter(above, false, true), 0xffffffu), 50);
      // The empty head: grey, not a plot at r = 0.
      const Rectangle undefined = layout.Cell(2, 1);
      EXPECT_EQ(pixels.At(static_cast<int>((undefined.right() - 2) * 3),
                          static_cast<int>((undefined.y + undefined.height / 2) * 3)),
                0xeeeeeeu);
    }
  }
}

TEST(CorrelationFigure, ShowsEveryCorrelationInItsPlace) {
  const TemporaryFolder folder;
  CorrelationMatrix matrix{.label = "A",
                           .length = 5,
                           .pairs = 14,
                           .heads = {{0, 0}, {1, 1}, {2, 2}, {3, 3}},
                           .defined_heads = 3,
                           .median_magnitude = 0.4,
                           .share_above_half = 0.25};
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      matrix.r.push_back(i == 3 || j == 3 ? std::optional<double>()
                         : i == j         ? 1.0
                         : i < j          ? 0.5
                                          : -0.25);
    }
  }
  for (const char* name : {"c.png", "c.svg", "c.pdf"})
    DrawCorrelations({matrix, matrix}, folder / name);
  const Pixels pixels = ReadPng(folder / "c.png");
  const CorrelationPage page = LayoutCorrelations({matrix, matrix});
  for (const Rectangle& area : page.matrices) {
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) {
        const std::uint32_t rgb =
            pixels.At(static_cast<int>((area.x + (j + 0.5) * page.cell) * kCorrelationPngScale),
                      static_cast<int>((area.y + (i + 0.5) * page.cell) * kCorrelationPngScale));
        const std::optional<double>& r = matrix.r[static_cast<std::size_t>(i * 4 + j)];
        const Rgb color = r ? CorrelationColor(*r) : Rgb{0xd4, 0xd4, 0xd4};
        EXPECT_EQ(rgb, static_cast<std::uint32_t>(color[0]) << 16 |
                           static_cast<std::uint32_t>(color[1]) << 8 | color[2])
            << i << " " << j;
      }
    }
  }
  EXPECT_NE(CorrelationColor(-1), CorrelationColor(1));
  EXPECT_EQ(CorrelationColor(0), (Rgb{255, 255, 255}));
}

}  // namespace
}  // namespace clearhead
