// SPDX-License-Identifier: MIT
// The one wrapper of Cairo: a page to draw on that becomes an SVG, PDF or PNG file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace clearhead {

struct Color {
  double red, green, blue;  // 0 to 1
  double alpha = 1;

  // 0xRRGGBB.
  static constexpr Color Hex(std::uint32_t rgb) {
    return {((rgb >> 16) & 255) / 255.0, ((rgb >> 8) & 255) / 255.0, (rgb & 255) / 255.0};
  }
  constexpr Color WithAlpha(double value) const { return {red, green, blue, value}; }
};

struct Point {
  double x, y;
};

struct Rectangle {
  double x, y, width, height;
  double right() const { return x + width; }
  double bottom() const { return y + height; }
};

struct Stroke {
  Color color;
  double width;
  double dash = 0;  // length of dashes and of the gaps between them; 0: a solid line
};

// What of the text sits at the given point.
enum class AlignX { kLeft, kCenter, kRight };
enum class AlignY { kTop, kMiddle, kBaseline, kBottom };

struct TextStyle {
  double size;
  Color color;
  AlignX align_x = AlignX::kLeft;
  AlignY align_y = AlignY::kBaseline;
  bool bold = false;
  bool monospace = false;
  double degrees = 0;  // clockwise about the given point; -90 reads upwards
};

struct TextExtents {
  double width;    // how far the pen moves
  double ascent;   // of the font above the baseline, the same for every text
  double descent;  // below it, positive
};

// Throws Error unless the file's extension is .svg, .pdf or .png (in any case). For commands: ask
// before the long computation, not after it.
void CheckFigurePath(const std::filesystem::path& path);

// A white page. Lengths are points (1/72 inch), x to the right, y down from the top left corner.
// Everything is drawn in memory; Save() writes the file, complete or not at all, and a canvas
// destroyed without Save() leaves nothing. The same calls give the same bytes.
// Text: any bytes; ill-formed UTF-8 shows as U+FFFD, control characters as spaces.
// Threads: one canvas, one thread. Failure: Error for the path, the size and the disk.
class Canvas {
 public:
  // `png_scale`: pixels per point; SVG and PDF have no pixels.
  Canvas(double width, double height, std::filesystem::path path, double png_scale = 2);
  Canvas(const Canvas&) = delete;
  Canvas& operator=(const Canvas&) = delete;
  ~Canvas();

  double width() const;
  double height() const;

  void Line(Point from, Point to, const Stroke& stroke);
  // One point makes no line.
  void Polyline(std::span<const Point> points, const Stroke& stroke);
  void FillRectangle(const Rectangle& area, Color color);
  void StrokeRectangle(const Rectangle& area, const Stroke& stroke);
  // The radius is cut to half the shorter side.
  void FillRoundedRectangle(const Rectangle& area, double radius, Color color);
  void StrokeRoundedRectangle(const Rectangle& area, double radius, const Stroke& stroke);
  void FillCircle(Point center, double radius, Color color);
  void FillPolygon(std::span<const Point> corners, Color color);

  // rgb: [rows][columns][3], row-major, stretched over `area` with hard pixel edges.
  void Image(const Rectangle& area, int columns, int rows, std::span<const std::uint8_t> rgb);

  void Text(Point at, std::string_view text, const TextStyle& style);
  // Of the unrotated text.
  TextExtents Measure(std::string_view text, const TextStyle& style) const;

  // Drawing is cut to `area` (and to clips around it) while the result lives.
  class Clip {
   public:
    Clip(Canvas* canvas, const Rectangle& area);
    Clip(const Clip&) = delete;
    Clip& operator=(const Clip&) = delete;
    ~Clip();

   private:
    Canvas* canvas_;
  };
  [[nodiscard]] Clip ClipTo(const Rectangle& area) { return Clip(this, area); }

  // Once; nothing can be drawn afterwards.
  void Save();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace clearhead
