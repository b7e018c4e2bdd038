// SPDX-License-Identifier: MIT
#include "features/suffix_counts.h"

#include <algorithm>
#include <utility>

namespace clearhead {
namespace {

// The token `distance` before a place; -1 before its window.
std::int32_t TokenBefore(const WindowedText& text, std::int64_t position, int distance) {
  if (position - distance < text.WindowStart(position)) return -1;
  return text.tokens[static_cast<std::size_t>(position - distance)];
}

// Places in the order of their tokens read backwards, against each other and against a pattern.
bool PlaceBefore(const WindowedText& text, std::int64_t a, std::int64_t b) {
  for (int distance = 0; distance < kPatternTokens; ++distance) {
    const std::int32_t x = TokenBefore(text, a, distance), y = TokenBefore(text, b, distance);
    if (x != y) return x < y;
  }
  return a < b;
}

int Compare(const WindowedText& text, std::int64_t position, const TokenPattern& pattern) {
  for (int distance = 0; distance < pattern.length; ++distance) {
    const std::int32_t x = TokenBefore(text, position, distance), y = pattern.FromEnd(distance);
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

}  // namespace

TokenPattern PatternAt(const WindowedText& text, std::int64_t position, int length) {
  TokenPattern pattern;
  const std::int64_t start = text.WindowStart(position);
  for (std::int64_t at = std::max(start, position - length + 1); at <= position; ++at) {
    pattern.tokens[static_cast<std::size_t>(pattern.length++)] =
        text.tokens[static_cast<std::size_t>(at)];
  }
  return pattern;
}

bool EndsAt(const TokenPattern& pattern, const WindowedText& text, std::int64_t position) {
  return Compare(text, position, pattern) == 0;
}

bool IsSuffix(const TokenPattern& shorter, const TokenPattern& longer) {
  if (shorter.length > longer.length) return false;
  for (int distance = 0; distance < shorter.length; ++distance) {
    if (shorter.FromEnd(distance) != longer.FromEnd(distance)) return false;
  }
  return true;
}

SuffixCounts::SuffixCounts(const WindowedText& text, std::vector<std::uint32_t> positions)
    : text_(text), sorted_(std::move(positions)) {
  std::sort(sorted_.begin(), sorted_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return PlaceBefore(text_, a, b); });
}

std::int64_t SuffixCounts::Count(const TokenPattern& pattern) const {
  const auto first = std::partition_point(
      sorted_.begin(), sorted_.end(),
      [&](std::uint32_t position) { return Compare(text_, position, pattern) < 0; });
  const auto last = std::partition_point(first, sorted_.end(), [&](std::uint32_t position) {
    return Compare(text_, position, pattern) == 0;
  });
  return last - first;
}

}  // namespace clearhead
