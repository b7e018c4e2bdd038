// SPDX-License-Identifier: MIT
#include "figures/canvas.h"

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <cairo.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "figures/theme.h"
#include "text/utf8.h"

#ifdef __SANITIZE_ADDRESS__
// Fontconfig links its patterns by offsets instead of pointers, so the leak checker takes what it
// keeps for lost. Here, because every program that draws links this file.
extern "C" const char* __lsan_default_suppressions() { return "leak:libfontconfig\n"; }
extern "C" const char* __lsan_default_options() { return "print_suppressions=0"; }
#endif

namespace clearhead {
namespace fs = std::filesystem;
namespace {

enum class Format { kSvg, kPdf, kPng };

Format FormatOf(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (extension == ".svg") return Format::kSvg;
  if (extension == ".pdf") return Format::kPdf;
  if (extension == ".png") return Format::kPng;
  Fail("cannot draw '{}': its extension is {}; name the figure .svg, .pdf or .png", path.string(),
       extension.empty() ? "missing" : "'" + extension + "'");
}

// Cairo is C: no exception may pass through it.
cairo_status_t AppendBytes(void* bytes, const unsigned char* data, unsigned int length) {
  try {
    static_cast<std::string*>(bytes)->append(reinterpret_cast<const char*>(data), length);
    return CAIRO_STATUS_SUCCESS;
  } catch (...) {
    return CAIRO_STATUS_NO_MEMORY;
  }
}

struct SurfaceDeleter {
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
};
struct ContextDeleter {
  void operator()(cairo_t* context) const { cairo_destroy(context); }
};
struct FontOptionsDeleter {
  void operator()(cairo_font_options_t* options) const { cairo_font_options_destroy(options); }
};
using Surface = std::unique_ptr<cairo_surface_t, SurfaceDeleter>;
using Context = std::unique_ptr<cairo_t, ContextDeleter>;
using FontOptions = std::unique_ptr<cairo_font_options_t, FontOptionsDeleter>;

void CheckCairo(cairo_status_t status) {
  Check(status == CAIRO_STATUS_SUCCESS,
        std::string("Cairo reports: ") + cairo_status_to_string(status));
}

// Cairo names surfaces and images in an SVG after a counter of the whole process, so a second
// figure would differ from the first. Numbers every such name anew, in the order of appearance. All
// text is glyph outlines and images are base64, so a name after `"` or `#` can be nothing else.
std::string WithStableNames(const std::string& svg) {
  static constexpr std::array<std::string_view, 2> kCounted = {"surface", "image"};
  std::string result;
  result.reserve(svg.size());
  std::map<std::string, std::size_t> numbers;
  for (std::size_t i = 0; i < svg.size();) {
    const char mark = svg[i];
    result += svg[i++];
    if (mark != '"' && mark != '#') continue;
    for (const std::string_view name : kCounted) {
      if (svg.compare(i, name.size(), name) != 0) continue;
      std::size_t end = i + name.size();
      while (end < svg.size() && std::isdigit(static_cast<unsigned char>(svg[end]))) ++end;
      if (end == i + name.size()) continue;
      const auto [entry, is_new] = numbers.try_emplace(svg.substr(i, end - i), numbers.size() + 1);
      result.append(name).append(std::to_string(entry->second));
      i = end;
      break;
    }
  }
  return result;
}

// What can be drawn as one line of text.
std::string DrawableText(std::string_view text) {
  std::string drawable = ToValidUtf8(text);
  for (char& c : drawable) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return drawable;
}

int MissingGlyphs(cairo_t* context, const std::string& text) {
  cairo_glyph_t* glyphs = nullptr;
  int count = 0;
  const cairo_status_t status = cairo_scaled_font_text_to_glyphs(
      cairo_get_scaled_font(context), 0, 0, text.data(), static_cast<int>(text.size()), &glyphs,
      &count, nullptr, nullptr, nullptr);
  if (status != CAIRO_STATUS_SUCCESS) return static_cast<int>(text.size());
  const auto missing = std::count_if(glyphs, glyphs + count,
                                     [](const cairo_glyph_t& glyph) { return glyph.index == 0; });
  cairo_glyph_free(glyphs);
  return static_cast<int>(missing);
}

// Selects the first family of the theme's list that has every glyph of the text, else the one that
// misses the fewest.
void SelectFont(cairo_t* context, const std::string& text, const TextStyle& style) {
  const auto& families = style.monospace ? theme::kMonospaceFamilies : theme::kSansFamilies;
  const auto select = [&](const char* family) {
    cairo_select_font_face(context, family, CAIRO_FONT_SLANT_NORMAL,
                           style.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  };
  cairo_set_font_size(context, style.size);
  const char* best = nullptr;
  int fewest = 0;
  for (const char* family : families) {
    select(family);
    const int missing = MissingGlyphs(context, text);
    if (missing == 0) return;
    if (best == nullptr || missing < fewest) {
      best = family;
      fewest = missing;
    }
  }
  select(best);
}

void SetColor(cairo_t* context, Color color) {
  cairo_set_source_rgba(context, color.red, color.green, color.blue, color.alpha);
}

void StrokePath(cairo_t* context, const Stroke& stroke) {
  SetColor(context, stroke.color);
  cairo_set_line_width(context, stroke.width);
  cairo_set_dash(context, &stroke.dash, stroke.dash > 0 ? 1 : 0, 0);
  // Round caps would close the gaps of a dashed line.
  cairo_set_line_cap(context, stroke.dash > 0 ? CAIRO_LINE_CAP_BUTT : CAIRO_LINE_CAP_ROUND);
  cairo_stroke(context);
}

void RoundedPath(cairo_t* context, const Rectangle& area, double radius) {
  constexpr double kQuarter = std::numbers::pi / 2;
  const double r = std::clamp(radius, 0.0, std::max(0.0, std::min(area.width, area.height) / 2));
  cairo_new_sub_path(context);
  cairo_arc(context, area.right() - r, area.y + r, r, -kQuarter, 0);
  cairo_arc(context, area.right() - r, area.bottom() - r, r, 0, kQuarter);
  cairo_arc(context, area.x + r, area.bottom() - r, r, kQuarter, 2 * kQuarter);
  cairo_arc(context, area.x + r, area.y + r, r, 2 * kQuarter, 3 * kQuarter);
  cairo_close_path(context);
}

void PolylinePath(cairo_t* context, std::span<const Point> points) {
  cairo_new_path(context);
  for (const Point& point : points) cairo_line_to(context, point.x, point.y);
}

}  // namespace

struct Canvas::State {
  fs::path path;
  Format format;
  double width, height, png_scale;
  std::string bytes;  // before the surface: a stream surface writes here until it is destroyed
  Surface surface;
  Context context;
};

void CheckFigurePath(const fs::path& path) { FormatOf(path); }

Canvas::Canvas(double width, double height, fs::path path, double png_scale) {
  const Format format = FormatOf(path);
  Check(width > 0 && height > 0 && png_scale > 0, "a figure needs a positive size and scale");
  state_ = std::make_unique<State>(State{.path = std::move(path),
                                         .format = format,
                                         .width = width,
                                         .height = height,
                                         .png_scale = png_scale});
  // Cairo's images hold at most 32767 pixels a side; the page formats get the same limit in points.
  const double scale = format == Format::kPng ? png_scale : 1;
  constexpr double kMaxSide = 32767;
  if (std::ceil(width * scale) > kMaxSide || std::ceil(height * scale) > kMaxSide) {
    Fail(
        "cannot draw '{}': {:.0f} x {:.0f} is too large (at most {:.0f} a side); draw less at once",
        state_->path.string(), width * scale, height * scale, kMaxSide);
  }
  cairo_surface_t* surface = nullptr;
  if (format == Format::kSvg) {
    surface = cairo_svg_surface_create_for_stream(AppendBytes, &state_->bytes, width, height);
  } else if (format == Format::kPdf) {
    surface = cairo_pdf_surface_create_for_stream(AppendBytes, &state_->bytes, width, height);
    // The same drawing is the same file on any day; a file's age is for the file system to tell.
    cairo_pdf_surface_set_metadata(surface, CAIRO_PDF_METADATA_CREATE_DATE, "");
  } else {
    surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24,
                                         static_cast<int>(std::ceil(width * png_scale)),
                                         static_cast<int>(std::ceil(height * png_scale)));
  }
  state_->surface.reset(surface);
  CheckCairo(cairo_surface_status(surface));
  state_->context.reset(cairo_create(surface));
  cairo_t* context = state_->context.get();
  CheckCairo(cairo_status(context));
  // Without hinting, text has the same extents in all three formats: one layout serves them all.
  const FontOptions options(cairo_font_options_create());
  cairo_font_options_set_hint_style(options.get(), CAIRO_HINT_STYLE_NONE);
  cairo_font_options_set_hint_metrics(options.get(), CAIRO_HINT_METRICS_OFF);
  cairo_font_options_set_antialias(options.get(), CAIRO_ANTIALIAS_GRAY);
  cairo_set_font_options(context, options.get());
  cairo_set_line_join(context, CAIRO_LINE_JOIN_ROUND);
  // Painted before the scale: an odd size leaves no dark edge in the last pixel row and column.
  SetColor(context, theme::kPaper);
  cairo_paint(context);
  cairo_scale(context, scale, scale);
}

Canvas::~Canvas() = default;

double Canvas::width() const { return state_->width; }
double Canvas::height() const { return state_->height; }

void Canvas::Line(Point from, Point to, const Stroke& stroke) {
  Polyline(std::array{from, to}, stroke);
}

void Canvas::Polyline(std::span<const Point> points, const Stroke& stroke) {
  if (points.size() < 2) return;
  PolylinePath(state_->context.get(), points);
  StrokePath(state_->context.get(), stroke);
}

void Canvas::FillRectangle(const Rectangle& area, Color color) {
  SetColor(state_->context.get(), color);
  cairo_rectangle(state_->context.get(), area.x, area.y, area.width, area.height);
  cairo_fill(state_->context.get());
}

void Canvas::StrokeRectangle(const Rectangle& area, const Stroke& stroke) {
  cairo_rectangle(state_->context.get(), area.x, area.y, area.width, area.height);
  StrokePath(state_->context.get(), stroke);
}

void Canvas::FillRoundedRectangle(const Rectangle& area, double radius, Color color) {
  SetColor(state_->context.get(), color);
  RoundedPath(state_->context.get(), area, radius);
  cairo_fill(state_->context.get());
}

void Canvas::StrokeRoundedRectangle(const Rectangle& area, double radius, const Stroke& stroke) {
  RoundedPath(state_->context.get(), area, radius);
  StrokePath(state_->context.get(), stroke);
}

void Canvas::FillCircle(Point center, double radius, Color color) {
  SetColor(state_->context.get(), color);
  cairo_new_path(state_->context.get());
  cairo_arc(state_->context.get(), center.x, center.y, radius, 0, 2 * std::numbers::pi);
  cairo_fill(state_->context.get());
}

void Canvas::FillPolygon(std::span<const Point> corners, Color color) {
  SetColor(state_->context.get(), color);
  PolylinePath(state_->context.get(), corners);
  cairo_fill(state_->context.get());
}

void Canvas::Image(const Rectangle& area, int columns, int rows,
                   std::span<const std::uint8_t> rgb) {
  Check(columns >= 1 && rows >= 1 &&
            rgb.size() == static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows) * 3,
        "an image needs rows x columns x 3 bytes");
  // Viewers of SVG and PDF smooth enlarged images, whatever the file asks for. So there each pixel
  // becomes a block, fine enough that what they smooth is under a quarter of a point.
  int block_x = 1, block_y = 1;
  if (state_->format != Format::kPng) {
    const auto block = [](double length, int pixels) {
      return static_cast<int>(std::clamp(std::ceil(4 * length / pixels), 1.0, 64.0));
    };
    block_x = block(area.width, columns);
    block_y = block(area.height, rows);
  }
  constexpr int kMaxSide = 32767;
  Check(columns <= kMaxSide && rows <= kMaxSide, "an image has at most 32767 pixels a side");
  block_x = std::min(block_x, kMaxSide / columns);
  block_y = std::min(block_y, kMaxSide / rows);

  const int width = columns * block_x, height = rows * block_y;
  const Surface image(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height));
  CheckCairo(cairo_surface_status(image.get()));
  unsigned char* data = cairo_image_surface_get_data(image.get());
  const auto stride = static_cast<std::size_t>(cairo_image_surface_get_stride(image.get()));
  for (int y = 0; y < height; ++y) {
    auto* line = reinterpret_cast<std::uint32_t*>(data + static_cast<std::size_t>(y) * stride);
    const std::uint8_t* source =
        rgb.data() + static_cast<std::size_t>(y / block_y) * static_cast<std::size_t>(columns) * 3;
    for (int x = 0; x < width; ++x) {
      const std::uint8_t* pixel = source + 3 * (x / block_x);
      line[x] = static_cast<std::uint32_t>(pixel[0]) << 16 |
                static_cast<std::uint32_t>(pixel[1]) << 8 | pixel[2];
    }
  }
  cairo_surface_mark_dirty(image.get());

  cairo_t* context = state_->context.get();
  cairo_save(context);
  if (state_->format == Format::kPng) {
    cairo_rectangle(context, area.x, area.y, area.width, area.height);
    cairo_clip(context);
  }
  cairo_translate(context, area.x, area.y);
  cairo_scale(context, area.width / width, area.height / height);
  cairo_set_source_surface(context, image.get(), 0, 0);
  cairo_pattern_set_filter(cairo_get_source(context), CAIRO_FILTER_NEAREST);
  // Pixels cut by the edge of the area take their colour from the image alone: padded, and clipped
  // above. SVG and PDF place the image itself; padding would make it a tiled pattern there.
  if (state_->format == Format::kPng) {
    cairo_pattern_set_extend(cairo_get_source(context), CAIRO_EXTEND_PAD);
  }
  cairo_paint(context);
  cairo_restore(context);
}

TextExtents Canvas::Measure(std::string_view text, const TextStyle& style) const {
  cairo_t* context = state_->context.get();
  const std::string drawable = DrawableText(text);
  SelectFont(context, drawable, style);
  cairo_text_extents_t extents;
  cairo_text_extents(context, drawable.c_str(), &extents);
  cairo_font_extents_t font;
  cairo_font_extents(context, &font);
  return {extents.x_advance, font.ascent, font.descent};
}

void Canvas::Text(Point at, std::string_view text, const TextStyle& style) {
  const std::string drawable = DrawableText(text);
  const TextExtents extents = Measure(text, style);  // selects the font, too
  double x = 0, y = 0;
  if (style.align_x == AlignX::kCenter) x = -extents.width / 2;
  if (style.align_x == AlignX::kRight) x = -extents.width;
  if (style.align_y == AlignY::kTop) y = extents.ascent;
  if (style.align_y == AlignY::kBottom) y = -extents.descent;
  // Half the height of capitals and digits: what the eye takes for the middle.
  if (style.align_y == AlignY::kMiddle) y = theme::kCapitalHeight * style.size / 2;
  cairo_t* context = state_->context.get();
  cairo_save(context);
  cairo_translate(context, at.x, at.y);
  cairo_rotate(context, style.degrees * std::numbers::pi / 180);
  cairo_move_to(context, x, y);
  SetColor(context, style.color);
  cairo_show_text(context, drawable.c_str());
  cairo_restore(context);
  cairo_new_path(context);  // show_text leaves its pen behind, where the next arc would start
}

Canvas::Clip::Clip(Canvas* canvas, const Rectangle& area) : canvas_(canvas) {
  cairo_t* context = canvas_->state_->context.get();
  cairo_save(context);
  cairo_rectangle(context, area.x, area.y, area.width, area.height);
  cairo_clip(context);
}

Canvas::Clip::~Clip() { cairo_restore(canvas_->state_->context.get()); }

void Canvas::Save() {
  Check(state_->surface != nullptr, "a figure is saved once");
  CheckCairo(cairo_status(state_->context.get()));
  state_->context.reset();
  if (state_->format == Format::kPng) {
    CheckCairo(
        cairo_surface_write_to_png_stream(state_->surface.get(), AppendBytes, &state_->bytes));
  }
  cairo_surface_finish(state_->surface.get());
  CheckCairo(cairo_surface_status(state_->surface.get()));
  state_->surface.reset();
  WriteFile(state_->path,
            state_->format == Format::kSvg ? WithStableNames(state_->bytes) : state_->bytes);
}

}  // namespace clearhead
