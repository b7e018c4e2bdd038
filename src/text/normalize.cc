// SPDX-License-Identifier: MIT
#include "text/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/error.h"
#include "text/text_rules.h"
#include "text/utf8.h"

namespace clearhead {
namespace {

using CodePoints = std::vector<utf8proc_int32_t>;

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

// Appends the canonical decomposition of well-formed text, marks not yet in order.
void Decompose(std::string_view text, CodePoints* points) {
  constexpr std::size_t kMostPoints = 32;  // far above Unicode's longest decomposition, 4
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (std::size_t i = 0; i < text.size();) {
    utf8proc_int32_t point = 0;
    const auto length =
        utf8proc_iterate(bytes + i, static_cast<utf8proc_ssize_t>(text.size() - i), &point);
    Check(length > 0, "ill-formed UTF-8");
    const std::size_t at = points->size();
    points->resize(at + kMostPoints);
    int last_class = 0;
    const auto count = utf8proc_decompose_char(
        point, points->data() + at, kMostPoints,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &last_class);
    Check(count > 0 && count <= static_cast<utf8proc_ssize_t>(kMostPoints), "a decomposition");
    points->resize(at + count);
    i += length;
  }
}

int CombiningClass(utf8proc_int32_t point) { return utf8proc_get_property(point)->combining_class; }

// Marks after one letter in the order of their classes. (The library's own sorting takes the square
// of their number, which is fine for text and not for hostile text.)
void OrderMarks(CodePoints* points) {
  for (auto first = points->begin(); first != points->end();) {
    if (CombiningClass(*first) == 0) {
      ++first;
      continue;
    }
    const auto end = std::find_if(first, points->end(),
                                  [](utf8proc_int32_t p) { return CombiningClass(p) == 0; });
    std::stable_sort(first, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    first = end;
  }
}

std::string NfcOfWellFormed(std::string_view text) {
  CodePoints points;
  points.reserve(text.size());
  Decompose(text, &points);
  OrderMarks(&points);
  const auto count =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  Check(count >= 0, "composition failed");
  std::string composed;
  composed.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    utf8proc_uint8_t bytes[4];
    const auto length = utf8proc_encode_char(points[i], bytes);
    composed.append(reinterpret_cast<const char*>(bytes), length);
  }
  return composed;
}

}  // namespace

std::string MarksToSpaces(std::string_view text) {
  std::string spaced;
  spaced.reserve(text.size());
  for (std::size_t at; (at = text.find(kSpaceMark)) != std::string_view::npos;) {
    spaced.append(text.substr(0, at)) += ' ';
    text.remove_prefix(at + kSpaceMark.size());
  }
  return spaced.append(text);
}

std::optional<std::string> ToNfc(std::string_view text) {
  if (IsAscii(text)) return std::nullopt;
  std::string result;
  for (std::size_t done = 0; done < text.size();) {
    const std::size_t bad = FindIllFormed(text, done);
    result += NfcOfWellFormed(text.substr(done, bad - done));
    if (bad == text.size()) break;
    const std::size_t length = NextUtf8Part(text, bad).length;
    result.append(text, bad, length);
    done = bad + length;
  }
  if (result == text) return std::nullopt;
  return result;
}

}  // namespace clearhead
