// SPDX-License-Identifier: MIT
#include "text/utf8.h"

#include <cstdint>
#include <cstring>

namespace clearhead {
namespace {

// What may follow a lead byte (Unicode, table 3-7): the range of the second byte; later ones are
// always 80..BF.
struct Lead {
  std::size_t length;  // of the whole character; 0 if the byte cannot start one
  unsigned char low;
  unsigned char high;
};

Lead LeadOf(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Part NextUtf8Part(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = LeadOf(byte(position));
  if (lead.length <= 1) return {1, lead.length == 1};
  for (std::size_t i = 1; i < lead.length; ++i) {
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    const std::size_t at = position + i;
    if (at >= text.size() || byte(at) < low || byte(at) > high) return {i, false};
  }
  return {lead.length, true};
}

std::size_t FindIllFormed(std::string_view text, std::size_t from) {
  std::size_t i = from;
  while (i < text.size()) {
    // Most text is ASCII: eight bytes at a time.
    std::uint64_t eight;
    if (text.size() - i >= sizeof eight) {
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if ((eight & 0x8080808080808080ull) == 0) {
        i += sizeof eight;
        continue;
      }
    }
    const Utf8Part part = NextUtf8Part(text, i);
    if (!part.well_formed) return i;
    i += part.length;
  }
  return text.size();
}

std::string ToValidUtf8(std::string_view bytes) {
  std::string valid;
  valid.reserve(bytes.size());
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::size_t bad = FindIllFormed(bytes, done);
    valid.append(bytes, done, bad - done);
    if (bad == bytes.size()) break;
    valid += "\uFFFD";
    done = bad + NextUtf8Part(bytes, bad).length;
  }
  return valid;
}

}  // namespace clearhead
