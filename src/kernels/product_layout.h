// SPDX-License-Identifier: MIT
// The shapes that the block of a product, the packing and the loops around them agree on.
#pragma once

#include <cstdint>

namespace clearhead {

// B is cut into panels of 48 columns, each [k][48] in one piece, the last one filled up with zeros.
// 48 is three vectors of AVX-512, and a multiple of two and of three of everything narrower.
inline constexpr std::int64_t kPanelColumns = 48;

// k is cut into nearly equal chunks of at most `most`, which the instruction set decides
// (product_block-inl.h). Every element of C is
//   ((start + sum over chunk 0) + sum over chunk 1) + ...    each sum one chain, in order of k
// whatever the number of rows, threads or columns around it: equal bits.
inline constexpr std::int64_t kLongestChunk = 384;
constexpr std::int64_t ChunkOf(std::int64_t k, std::int64_t most) {
  if (k <= most) return most;
  const std::int64_t chunks = (k + most - 1) / most;
  return ((k + chunks - 1) / chunks + 15) / 16 * 16;
}

// Of k at a time, in whole chunks: what a task keeps of A stays in the second-level cache.
inline constexpr std::int64_t kMostDepth = 2048;

}  // namespace clearhead
