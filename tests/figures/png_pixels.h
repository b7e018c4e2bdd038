// SPDX-License-Identifier: MIT
// A PNG read back, pixel by pixel.
#pragma once

#include <cairo.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <vector>

namespace clearhead {

struct Pixels {
  int width = 0, height = 0;
  std::vector<std::uint32_t> rgb;  // [height][width], 0xRRGGBB

  std::uint32_t At(int x, int y) const {
    return rgb.at(static_cast<std::size_t>(y) * static_cast<std::size_t>(width) +
                  static_cast<std::size_t>(x));
  }
};

inline Pixels ReadPng(const std::filesystem::path& path) {
  cairo_surface_t* surface = cairo_image_surface_create_from_png(path.c_str());
  if (cairo_surface_status(surface) != CAIRO_STATUS_SUCCESS) {
    cairo_surface_destroy(surface);
    throw std::runtime_error("not a PNG: " + path.string());
  }
  Pixels pixels;
  pixels.width = cairo_image_surface_get_width(surface);
  pixels.height = cairo_image_surface_get_height(surface);
  const unsigned char* data = cairo_image_surface_get_data(surface);
  const int stride = cairo_image_surface_get_stride(surface);
  for (int y = 0; y < pixels.height; ++y) {
    const auto* row = reinterpret_cast<const std::uint32_t*>(data + y * stride);
    for (int x = 0; x < pixels.width; ++x) pixels.rgb.push_back(row[x] & 0xffffff);
  }
  cairo_surface_destroy(surface);
  return pixels;
}

}  // namespace clearhead
