// SPDX-License-Identifier: MIT
// fp32 to bf16 in tile order. Seen from the tiles, A and B are the same thing: an operand of lanes
// (rows of A, columns of B) and depth (k). They differ in which of the two is contiguous in the
// source, and in the order inside a tile.
#pragma once

#include <cstdint>

namespace clearhead::amx {

struct PackSource {
  const float* data;
  std::int64_t stride;  // between rows of data
  bool k_contiguous;    // value(lane, k) = data[lane * stride + k], else data[k * stride + lane]
  std::int64_t lanes;
  std::int64_t depth;
};

enum class TileOrder {
  kRows,   // A: [16 lanes][32 k]
  kPairs,  // B: [16 k pairs][16 lanes][2]
};

// Converts the step at (first_lane, first_k): 32 lanes x 32 k, two tiles, 2 KiB, to out (64-byte
// aligned). What lies beyond lanes and depth becomes zero. Rounds to nearest even; NaN stays NaN.
void PackStep(const PackSource& source, TileOrder order, std::int64_t first_lane,
              std::int64_t first_k, std::uint16_t* out);

}  // namespace clearhead::amx
