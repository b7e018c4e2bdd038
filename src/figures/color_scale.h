// SPDX-License-Identifier: MIT
// Colours that stand for numbers.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "figures/canvas.h"

namespace clearhead {

using Rgb = std::array<std::uint8_t, 3>;

inline constexpr Rgb kWeightFull = {0x08, 0x30, 0x6b};  // dark blue: all of the attention

// `share` of the way from one colour to another, 0 to 1.
inline Rgb Between(const Rgb& from, const Rgb& to, double share) {
  Rgb result;
  for (std::size_t part = 0; part < result.size(); ++part) {
    result[part] = static_cast<std::uint8_t>(
        std::lround(from[part] + share * (static_cast<double>(to[part]) - from[part])));
  }
  return result;
}

// An attention weight: white at 0 to dark blue at 1; weight^gamma of the way.
inline Rgb WeightColor(double weight, double gamma) {
  const double share = std::pow(std::clamp(weight, 0.0, 1.0), gamma);
  return Between({255, 255, 255}, kWeightFull, share);
}

// A correlation: orange at -1, white at 0, dark blue at 1.
inline Rgb CorrelationColor(double r) {
  constexpr Rgb kNegative = {0xb3, 0x4a, 0x00};
  return Between({255, 255, 255}, r < 0 ? kNegative : kWeightFull, std::min(1.0, std::abs(r)));
}

}  // namespace clearhead
