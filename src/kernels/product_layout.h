// SPDX-License-Identifier: MIT
// The shapes that the block of a product, the packing and the loops around them agree on.
#pragma once

#include <cstdint>

namespace clearhead {

// B is cut into panels of 48 columns, each [k][48] in one piece, the last one filled up with zeros.
// 48 is three vectors of AVX-512, and a multiple of three vectors of everything narrower.
inline constexpr std::int64_t kPanelColumns = 48;

// k is cut into nearly equal chunks. A chunk of a panel is at most 36 KiB: it stays in a
// first-level cache of 48 KiB while all rows of a block pass by, and comes from the second level,
// fast enough, where the first has 32. (Half as long it cost 3 % of the speed of a Zen 4: every
// chunk begins and ends its sums.) Every element of C is
//   ((start + sum over chunk 0) + sum over chunk 1) + ...    each sum one chain, in order of k
// whatever the number of rows, threads or columns around it: equal bits.
inline constexpr std::int64_t kMostChunk = 192;
constexpr std::int64_t ChunkOf(std::int64_t k) {
  if (k <= kMostChunk) return kMostChunk;
  const std::int64_t chunks = (k + kMostChunk - 1) / kMostChunk;
  return ((k + chunks - 1) / chunks + 15) / 16 * 16;
}

// Of k at a time, in whole chunks: what a task keeps of A stays in the second-level cache.
inline constexpr std::int64_t kMostDepth = 2048;
constexpr std::int64_t DepthOf(std::int64_t k) { return kMostDepth / ChunkOf(k) * ChunkOf(k); }

}  // namespace clearhead
