// SPDX-License-Identifier: MIT
#include "figures/canvas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "figures/png_pixels.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr Color kRed = Color::Hex(0xff0000);
constexpr Color kBlue = Color::Hex(0x0000ff);
constexpr Color kBlack = Color::Hex(0x000000);

// Uses every kind of drawing once.
void DrawEverything(const std::filesystem::path& path) {
  Canvas canvas(101, 67, path);
  canvas.Line({1, 1}, {30, 9}, {kRed, 1});
  canvas.Polyline(std::array<Point, 3>{{{1, 20}, {30, 25}, {40, 20}}}, {kBlue, 1, 3});
  canvas.FillRectangle({50, 5, 10, 10}, kRed.WithAlpha(0.5));
  canvas.StrokeRectangle({50, 5, 10, 10}, {kBlack, 0.5});
  canvas.FillRoundedRectangle({65, 5, 20, 10}, 3, kBlue);
  canvas.StrokeRoundedRectangle({65, 5, 20, 10}, 300, {kBlack, 0.5});
  canvas.FillCircle({90, 40}, 4, kRed);
  canvas.FillPolygon(std::array<Point, 3>{{{80, 60}, {90, 60}, {85, 50}}}, kBlack);
  const std::vector<std::uint8_t> rgb = {255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9};
  canvas.Image({5, 30, 20, 20}, 2, 2, rgb);
  canvas.Image({30, 30, 20, 20}, 2, 2, rgb);
  {
    const auto clip = canvas.ClipTo({50, 30, 10, 10});
    canvas.FillCircle({50, 30}, 20, kBlue);
  }
  canvas.Text({50, 60}, "Text − ü", {.size = 9, .color = kBlack, .degrees = -20});
  canvas.Save();
}

TEST(Canvas, WritesTheTypeOfTheExtension) {
  const TemporaryFolder folder;
  for (const char* name : {"a.svg", "a.pdf", "a.png", "B.PNG"}) DrawEverything(folder / name);
  EXPECT_THAT(ReadFile(folder / "a.svg"), StartsWith("<?xml"));
  EXPECT_THAT(ReadFile(folder / "a.svg"), HasSubstr("width=\"101pt\" height=\"67pt\""));
  EXPECT_THAT(ReadFile(folder / "a.svg"), EndsWith("</svg>\n"));
  EXPECT_THAT(ReadFile(folder / "a.pdf"), StartsWith("%PDF-"));
  EXPECT_THAT(ReadFile(folder / "a.pdf"), EndsWith("%%EOF\n"));
  EXPECT_THAT(ReadFile(folder / "a.png"), StartsWith("\x89PNG\r\n\x1a\n"));
  EXPECT_THAT(ReadFile(folder / "B.PNG"), StartsWith("\x89PNG\r\n\x1a\n"));
}

TEST(Canvas, SameDrawingSameBytes) {
  const TemporaryFolder folder;
  for (const std::string type : {"svg", "pdf", "png"}) {
    DrawEverything(folder / ("a." + type));
    DrawEverything(folder / ("b." + type));
    EXPECT_EQ(ReadFile(folder / ("a." + type)), ReadFile(folder / ("b." + type))) << type;
  }
  EXPECT_THAT(ReadFile(folder / "a.pdf"), Not(HasSubstr("CreationDate")));
  // Two images keep two names, and each name is used.
  const std::string svg = ReadFile(folder / "a.svg");
  std::set<std::string> names;
  for (std::size_t at = 0; (at = svg.find("<image id=\"", at)) != std::string::npos;) {
    at += 11;
    names.insert(svg.substr(at, svg.find('"', at) - at));
  }
  EXPECT_EQ(names.size(), 2u);
  for (const std::string& name : names) EXPECT_THAT(svg, HasSubstr("xlink:href=\"#" + name + "\""));
}

TEST(Canvas, RefusesOtherExtensions) {
  const TemporaryFolder folder;
  for (const char* name : {"a.jpg", "a", "a.svg.gz", ".png"}) {
    EXPECT_THROW(CheckFigurePath(folder / name), Error) << name;
    try {
      Canvas canvas(10, 10, folder / name);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(".svg, .pdf or .png"));
      EXPECT_THAT(error.what(), HasSubstr(name));
      EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    }
  }
  EXPECT_NO_THROW(CheckFigurePath("x.y.SVG"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Canvas, LeavesNothingBehindWithoutSaveOrFolder) {
  const TemporaryFolder folder;
  { Canvas canvas(10, 10, folder / "a.pdf"); }
  Canvas canvas(10, 10, folder / "missing/a.png");
  try {
    canvas.Save();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("missing/a.png"));
  }
  EXPECT_THROW(canvas.Save(), std::logic_error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Canvas, KeepsTheOldFileWhenDrawingStops) {
  const TemporaryFolder folder;
  WriteFile(folder / "a.svg", "old");
  { Canvas canvas(10, 10, folder / "a.svg"); }
  EXPECT_EQ(ReadFile(folder / "a.svg"), "old");
}

TEST(Canvas, RefusesSizesBeyondCairo) {
  const TemporaryFolder folder;
  EXPECT_THROW(Canvas(20000, 10, folder / "a.png"), Error);  // 40000 pixels
  EXPECT_THROW(Canvas(10, 40000, folder / "a.svg"), Error);
  EXPECT_THROW(Canvas(0, 10, folder / "a.svg"), std::logic_error);
}

TEST(Canvas, PutsPixelsWhereTheyBelong) {
  const TemporaryFolder folder;
  Canvas canvas(51, 20.3, folder / "a.png", 3);
  canvas.FillRectangle({10, 5, 4, 2}, kRed);
  canvas.FillCircle({30, 10}, 5, kBlue);
  {
    const auto clip = canvas.ClipTo({40, 0, 5, 20});
    canvas.FillRectangle({0, 15, 51, 2}, kBlack);
  }
  canvas.FillRectangle({48, 15, 1, 1}, kBlack);  // the clip is over
  canvas.Save();
  const Pixels pixels = ReadPng(folder / "a.png");
  EXPECT_EQ(pixels.width, 153);
  EXPECT_EQ(pixels.height, 61);
  EXPECT_EQ(pixels.At(0, 0), 0xffffffu);
  EXPECT_EQ(pixels.At(152, 60), 0xffffffu);  // the page is white up to its cut last row
  EXPECT_EQ(pixels.At(30, 15), 0xff0000u);
  EXPECT_EQ(pixels.At(41, 20), 0xff0000u);
  EXPECT_EQ(pixels.At(29, 15), 0xffffffu);
  EXPECT_EQ(pixels.At(42, 20), 0xffffffu);
  EXPECT_EQ(pixels.At(90, 30), 0x0000ffu);
  EXPECT_EQ(pixels.At(90 + 11, 30 + 11), 0xffffffu);  // outside the circle, inside its square
  EXPECT_EQ(pixels.At(119, 46), 0xffffffu);
  EXPECT_EQ(pixels.At(120, 46), 0x000000u);
  EXPECT_EQ(pixels.At(134, 46), 0x000000u);
  EXPECT_EQ(pixels.At(135, 46), 0xffffffu);
  EXPECT_EQ(pixels.At(145, 46), 0x000000u);
}

TEST(Canvas, RoundedCornersAreOpen) {
  const TemporaryFolder folder;
  Canvas canvas(20, 20, folder / "a.png", 1);
  canvas.FillRoundedRectangle({2, 2, 16, 16}, 6, kRed);
  canvas.Save();
  const Pixels pixels = ReadPng(folder / "a.png");
  EXPECT_EQ(pixels.At(2, 2), 0xffffffu);
  EXPECT_EQ(pixels.At(17, 17), 0xffffffu);
  EXPECT_EQ(pixels.At(2, 10), 0xff0000u);
  EXPECT_EQ(pixels.At(10, 17), 0xff0000u);
}

TEST(Canvas, ImagesHaveHardEdges) {
  const TemporaryFolder folder;
  // 3 x 2 pixels over 30 x 20 points at 2 pixels a point: blocks of exactly 20 x 20.
  const std::vector<std::uint8_t> rgb = {255, 0, 0, 0,   255, 0, 0, 0, 255,
                                         0,   0, 0, 255, 255, 0, 1, 2, 3};
  const std::array<std::uint32_t, 6> expected = {0xff0000, 0x00ff00, 0x0000ff,
                                                 0x000000, 0xffff00, 0x010203};
  Canvas canvas(40, 30, folder / "a.png");
  canvas.Image({5, 5, 30, 20}, 3, 2, rgb);
  canvas.Save();
  const Pixels pixels = ReadPng(folder / "a.png");
  for (int y = 0; y < pixels.height; ++y) {
    for (int x = 0; x < pixels.width; ++x) {
      const bool inside = x >= 10 && x < 70 && y >= 10 && y < 50;
      const std::uint32_t want =
          inside ? expected[static_cast<std::size_t>((y - 10) / 20 * 3 + (x - 10) / 20)] : 0xffffff;
      ASSERT_EQ(pixels.At(x, y), want) << x << ", " << y;
    }
  }
}

TEST(Canvas, TextIsAlignedAsAsked) {
  const TemporaryFolder folder;
  // The columns and rows with ink, when "HHH" is drawn at (50, 50).
  struct Ink {
    int left = 1000, right = -1, top = 1000, bottom = -1;
  };
  const auto ink = [&](TextStyle style) {
    Canvas canvas(100, 100, folder / "a.png", 1);
    canvas.Text({50, 50}, "HHH", style);
    canvas.Save();
    const Pixels pixels = ReadPng(folder / "a.png");
    Ink result;
    for (int y = 0; y < 100; ++y) {
      for (int x = 0; x < 100; ++x) {
        if (pixels.At(x, y) == 0xffffff) continue;
        result.left = std::min(result.left, x);
        result.right = std::max(result.right, x);
        result.top = std::min(result.top, y);
        result.bottom = std::max(result.bottom, y);
      }
    }
    return result;
  };
  TextStyle style{.size = 12, .color = kBlack};
  Ink at = ink(style);
  EXPECT_GE(at.left, 50);
  EXPECT_GT(at.right, 65);
  EXPECT_LE(at.bottom, 50);
  style.align_x = AlignX::kRight;
  style.align_y = AlignY::kTop;
  at = ink(style);
  EXPECT_LT(at.right, 50);
  EXPECT_GE(at.top, 50);
  style.align_x = AlignX::kCenter;
  style.align_y = AlignY::kMiddle;
  at = ink(style);
  EXPECT_NEAR((at.left + at.right) / 2.0, 49.5, 1.5);
  EXPECT_NEAR((at.top + at.bottom) / 2.0, 49.5, 1.5);
  style = {.size = 12, .color = kBlack, .degrees = -90};  // upwards from the point
  at = ink(style);
  EXPECT_LT(at.bottom, 50);
  EXPECT_LT(at.top, 35);
  EXPECT_LE(at.right, 50);
}

TEST(Canvas, MeasuresAlikeInAllFormats) {
  const TemporaryFolder folder;
  const TextStyle style{.size = 10, .color = kBlack};
  const Canvas svg(10, 10, folder / "a.svg"), pdf(10, 10, folder / "a.pdf"),
      png(10, 10, folder / "a.png");
  const double width = svg.Measure("attention", style).width;
  EXPECT_GT(width, 30);
  EXPECT_NEAR(pdf.Measure("attention", style).width, width, 1e-3);
  EXPECT_NEAR(png.Measure("attention", style).width, width, 1e-2);
  EXPECT_EQ(svg.Measure("", style).width, 0);
  EXPECT_NEAR(svg.Measure("attentionattention", style).width, 2 * width, 0.2);
}

TEST(Canvas, DrawsAnyBytesAsText) {
  const TemporaryFolder folder;
  for (const std::string name : {"a.svg", "a.pdf", "a.png"}) {
    Canvas canvas(50, 50, folder / name);
    const TextStyle style{.size = 10, .color = kBlack};
    for (const std::string& text :
         {std::string("\xc3"), std::string("\xff\xfe"), std::string("a\0b", 3),
          std::string("\n\x1b"), std::string("中文"), std::string("\U0001F600"),
          std::string("]]><&\"'")}) {
      canvas.Text({5, 20}, text, style);
    }
    EXPECT_NO_THROW(canvas.Save()) << name;
  }
}

}  // namespace
}  // namespace clearhead
