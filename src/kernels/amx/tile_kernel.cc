// SPDX-License-Identifier: MIT
// Compiled with -mamx-tile -mamx-bf16 on x86-64. Nothing here may come from a template or an inline
// function of a shared header: the linker could pick the copy made here for a CPU without AMX.
#include "kernels/amx/tile_kernel.h"

#include "kernels/amx/tile_layout.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace clearhead::amx {
namespace {

// The 64 bytes that LDTILECFG reads.
struct alignas(64) TileConfig {
  std::uint8_t palette;
  std::uint8_t start_row;
  std::uint8_t reserved[14];
  std::uint16_t bytes_per_row[16];
  std::uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

constexpr TileConfig kFullTiles = {
    1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

}  // namespace

void ConfigureTiles() { _tile_loadconfig(&kFullTiles); }

void ReleaseTiles() { _tile_release(); }

// Tiles 0-3 are the block of C (0 1 / 2 3), 4-5 two tiles of A, 6-7 two tiles of B.
//
// One step is 4 multiplies of 16 cycles each = 64 cycles (more than the 52 after which a sum may be
// added to again, so four independent sums keep the multiplier busy), and 4 tile loads of 16 cache
// lines each = 32 cycles at the two loads per cycle of L1: the multiplier stays the bottleneck as
// long as the lines come from L1, and about half of them may come from L2 (32 lines at ~1.5
// cycles). Each load of the next step is issued right after the last multiply that reads its
// register, so one or two multiplies (16 to 32 cycles) lie between a load and its use even if the
// CPU did not rename tiles. The loop has no branch but its own, nothing is spilled, and the 8
// prefetches leave a third of the load slots free.
void MultiplyBlock(const TileBlock& block) {
  constexpr long kOperandStride = 64;
  constexpr std::int64_t kTile = kTileValues;
  constexpr std::int64_t kStep = kStepValues;
  const std::uint16_t* a = block.a;
  const std::uint16_t* b = block.b;

  // GCC's tile loads do not tell the compiler that they read memory.
  __asm__ volatile("" ::: "memory");
  if (block.in == nullptr) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    const long stride = static_cast<long>(block.in_stride * 4);
    const float* lower = block.in + kTileLanes * block.in_stride;
    _tile_loadd(0, block.in, stride);
    _tile_loadd(1, block.in + kTileLanes, stride);
    _tile_loadd(2, lower, stride);
    _tile_loadd(3, lower + kTileLanes, stride);
  }

  _tile_loadd(4, a, kOperandStride);
  _tile_loadd(6, b, kOperandStride);
  _tile_loadd(7, b + kTile, kOperandStride);
  _tile_loadd(5, a + kTile, kOperandStride);

  const char* next_b = reinterpret_cast<const char*>(block.next_b);
  const char* next_c = reinterpret_cast<const char*>(block.next_c);
  const std::int64_t next_c_row = block.next_c_stride * 4;
  for (std::int64_t step = 1; step < block.steps; ++step) {
    a += kStep;
    b += kStep;
    _tile_dpbf16ps(0, 4, 6);
    _mm_prefetch(next_b, _MM_HINT_T1);
    _mm_prefetch(next_b + 64, _MM_HINT_T1);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(4, a, kOperandStride);
    _mm_prefetch(next_b + 128, _MM_HINT_T1);
    _mm_prefetch(next_b + 192, _MM_HINT_T1);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(6, b, kOperandStride);
    _mm_prefetch(next_c, _MM_HINT_T1);
    _mm_prefetch(next_c + 64, _MM_HINT_T1);
    _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(7, b + kTile, kOperandStride);
    _tile_loadd(5, a + kTile, kOperandStride);
    _mm_prefetch(next_c + next_c_row, _MM_HINT_T1);
    _mm_prefetch(next_c + next_c_row + 64, _MM_HINT_T1);
    next_b += 256;
    next_c += 2 * next_c_row;
  }
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);

  const long stride = static_cast<long>(block.out_stride * 4);
  float* lower = block.out + kTileLanes * block.out_stride;
  _tile_stored(0, block.out, stride);
  _tile_stored(1, block.out + kTileLanes, stride);
  _tile_stored(2, lower, stride);
  _tile_stored(3, lower + kTileLanes, stride);
}

}  // namespace clearhead::amx

#else  // Detection never says yes here, so these are never called.

namespace clearhead::amx {

void ConfigureTiles() { __builtin_trap(); }
void ReleaseTiles() { __builtin_trap(); }
void MultiplyBlock(const TileBlock&) { __builtin_trap(); }

}  // namespace clearhead::amx

#endif
