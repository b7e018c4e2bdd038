// SPDX-License-Identifier: MIT
// The AMX instructions, behind three plain functions. Only call them where the tiles are usable
// (kernels/cpu_features.h) or emulated (tests/support/amx_emulator.h).
#pragma once

#include <cstdint>

namespace clearhead::amx {

// Tile registers exist per thread: configure before the first block, release after the last (a
// thread with live tiles drags 8 KiB more through every context switch).
void ConfigureTiles();
void ReleaseTiles();

// out[32,32] = in[32,32] + A[32, 32*steps] B[32*steps, 32]
struct TileBlock {
  const std::uint16_t* a;  // one strip, `steps` steps, 64-byte aligned
  const std::uint16_t* b;
  std::int64_t steps;  // at least 1

  const float* in;  // null: zeros. A row stride of 0 repeats one row (a bias).
  std::int64_t in_stride;
  float* out;               // may be in
  std::int64_t out_stride;  // in values, like in_stride

  // What to fetch into L2 meanwhile: per step 256 contiguous bytes of B, and two rows of 32 values
  // of C. Any address will do; a prefetch never faults.
  const std::uint16_t* next_b;
  const float* next_c;
  std::int64_t next_c_stride;
};
void MultiplyBlock(const TileBlock& block);

}  // namespace clearhead::amx
