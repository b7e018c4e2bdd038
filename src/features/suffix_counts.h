// SPDX-License-Identifier: MIT
// How often short runs of tokens end at the places of a text: the tokens of a place are sorted
// backwards once, and a count is two binary searches.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <vector>

#include "features/feature_tally.h"

namespace clearhead {

inline constexpr int kPatternTokens = 4;

// Up to four tokens in a row; a feature that it describes fires on the last one.
struct TokenPattern {
  std::array<std::int32_t, kPatternTokens> tokens = {-1, -1, -1, -1};  // in reading order
  std::int32_t length = 0;
  auto operator<=>(const TokenPattern&) const = default;

  // Counted from the last: 0 is where the feature fires.
  std::int32_t FromEnd(int distance) const {
    return tokens[static_cast<std::size_t>(length - 1 - distance)];
  }
};

// The `length` tokens that end at `position`; shorter where the window begins.
TokenPattern PatternAt(const WindowedText& text, std::int64_t position, int length);
bool EndsAt(const TokenPattern& pattern, const WindowedText& text, std::int64_t position);
// Whether wherever `longer` ends, `shorter` ends too.
bool IsSuffix(const TokenPattern& shorter, const TokenPattern& longer);

class SuffixCounts {
 public:
  // `positions` are the places that count.
  SuffixCounts(const WindowedText& text, std::vector<std::uint32_t> positions);

  std::int64_t Count(const TokenPattern& pattern) const;

 private:
  WindowedText text_;
  std::vector<std::uint32_t> sorted_;
};

}  // namespace clearhead
