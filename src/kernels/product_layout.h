// SPDX-License-Identifier: MIT
// The shapes that the block of a product, the packing and the loops around them agree on.
#pragma once

#include <cstdint>

namespace clearhead {

// B is cut into panels of 48 columns, each [k][48] in one piece, the last one filled up with zeros.
// 48 is three vectors of AVX-512, and a multiple of three vectors of everything narrower.
inline constexpr std::int64_t kPanelColumns = 48;

// k is cut into chunks. A chunk of a panel is 24 KiB and stays in the first-level cache while all
// rows of a block pass by. Every element of C is
//   ((start + sum over chunk 0) + sum over chunk 1) + ...    each sum one chain, in order of k
// whatever the number of rows, threads or columns around it: equal bits.
inline constexpr std::int64_t kChunk = 128;

// Of k at a time: what a task keeps of A stays in the second-level cache. A multiple of kChunk.
inline constexpr std::int64_t kMostDepth = 16 * kChunk;

}  // namespace clearhead
