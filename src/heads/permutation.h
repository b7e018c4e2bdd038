// SPDX-License-Identifier: MIT
// Permutation tests: p-values without assumptions about distributions. A pure function of the data
// and the seed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace clearhead {

inline constexpr std::int64_t kPermutations = 9999;

// Paired data: how often a mean difference this far from 0 arises when the sign of each difference
// is tossed. Exact for up to 13 pairs, else (1 + hits) / (1 + kPermutations). Nothing for fewer
// than two pairs.
std::optional<double> SignFlipPValue(std::span<const double> differences, std::uint64_t seed);

// Two samples: how often means this far apart arise when the values are dealt out anew. Nothing if
// either has fewer than two values.
std::optional<double> TwoSamplePValue(std::span<const double> a, std::span<const double> b,
                                      std::uint64_t seed);

}  // namespace clearhead
