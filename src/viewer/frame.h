// SPDX-License-Identifier: MIT
// How numbers travel to the page: a JSON header and float arrays behind it, in one block of bytes.
//
//   "CHF1"           4 bytes
//   N                u32, little-endian: bytes of the header, a multiple of 4
//   header           N bytes of JSON, padded with spaces; header.arrays[name] = {shape, offset}
//   floats           f32, little-endian; `offset` counts floats from here
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace clearhead {

struct FrameArray {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;
};

// `header` is an object; "arrays" is added to it.
std::string MakeFrame(Json header, std::span<const FrameArray> arrays);

// The other way, for tests and tools; throws Error for bytes that are not a frame.
struct ParsedFrame {
  Json header;
  std::vector<float> floats;

  std::span<const float> Array(const std::string& name) const;
};
ParsedFrame ParseFrame(std::string_view bytes);

}  // namespace clearhead
