// SPDX-License-Identifier: MIT
#include "viewer/frame.h"

#include <bit>
#include <cstring>

#include "core/error.h"

namespace clearhead {
namespace {

constexpr std::string_view kMagic = "CHF1";
constexpr std::size_t kStart = 8;

static_assert(std::endian::native == std::endian::little, "frames are written as they lie");

}  // namespace

std::string MakeFrame(Json header, std::span<const FrameArray> arrays) {
  Json places = Json::object();
  std::int64_t floats = 0;
  for (const FrameArray& array : arrays) {
    std::int64_t count = 1;
    for (const std::int64_t extent : array.shape) count *= extent;
    Check(count == static_cast<std::int64_t>(array.values.size()), "values of the frame's shape");
    places[array.name] = {{"shape", array.shape}, {"offset", floats}};
    floats += count;
  }
  header["arrays"] = std::move(places);
  std::string text = ToText(header, -1);
  while (text.size() % 4 != 0) text += ' ';
  const auto size = static_cast<std::uint32_t>(text.size());
  std::string frame;
  frame.reserve(kStart + text.size() + 4 * static_cast<std::size_t>(floats));
  frame += kMagic;
  frame.append(reinterpret_cast<const char*>(&size), sizeof(size));
  frame += text;
  for (const FrameArray& array : arrays) {
    frame.append(reinterpret_cast<const char*>(array.values.data()), array.values.size_bytes());
  }
  return frame;
}

ParsedFrame ParseFrame(std::string_view bytes) {
  if (!bytes.starts_with(kMagic) || bytes.size() < kStart)
    Fail("not a frame: no CHF1 at its start");
  std::uint32_t size = 0;
  std::memcpy(&size, bytes.data() + kMagic.size(), sizeof(size));
  if (size % 4 != 0 || size > bytes.size() - kStart) {
    Fail("not a frame: its header of {} bytes does not fit into {}", size, bytes.size());
  }
  ParsedFrame frame{.header = ParseJson(bytes.substr(kStart, size), "frame")};
  const std::string_view rest = bytes.substr(kStart + size);
  if (rest.size() % sizeof(float) != 0) Fail("not a frame: a part of a number at its end");
  frame.floats.resize(rest.size() / sizeof(float));
  if (!rest.empty()) std::memcpy(frame.floats.data(), rest.data(), rest.size());
  return frame;
}

std::span<const float> ParsedFrame::Array(const std::string& name) const {
  const Json& place = header.at("arrays").at(name);
  std::size_t count = 1;
  for (const Json& extent : place.at("shape")) count *= extent.get<std::size_t>();
  const auto offset = place.at("offset").get<std::size_t>();
  if (offset > floats.size() || count > floats.size() - offset) Fail("array {} is cut off", name);
  return std::span(floats).subspan(offset, count);
}

}  // namespace clearhead
