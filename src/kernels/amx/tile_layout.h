// SPDX-License-Identifier: MIT
// The shapes that the tile kernel, the packing and the loops around them agree on. Plain constants:
// this header is read by the translation unit that is compiled for AMX.
//
// A tile register is 16 rows of 64 bytes. TDPBF16PS computes C[16,16] += A[16,32] B[32,16] with
//   A tile  [16 rows][32 k]             bf16, row-major
//   B tile  [16 k pairs][16 columns][2] bf16: two neighbouring k sit beside each other
//   C tile  [16 rows][16 columns]       fp32
// The kernel works on blocks of 2 x 2 tiles of C. So an operand is cut into strips of 32 lanes
// (rows of A, columns of B), and one step of a strip is 32 k: two tiles, 2 KiB, contiguous.
#pragma once

#include <cstdint>

namespace clearhead::amx {

inline constexpr std::int64_t kTileLanes = 16;   // rows of an A tile, columns of a B tile
inline constexpr std::int64_t kStepK = 32;       // k in one tile
inline constexpr std::int64_t kStripLanes = 32;  // two tiles side by side
inline constexpr std::int64_t kTileValues = kTileLanes * kStepK;         // bf16 values in one tile
inline constexpr std::int64_t kStepValues = kStripLanes * kStepK;        // bf16 values in one step
inline constexpr std::int64_t kBlockValues = kStripLanes * kStripLanes;  // fp32 values of a C block

}  // namespace clearhead::amx
