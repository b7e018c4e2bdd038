// SPDX-License-Identifier: MIT
// Runs the real AMX kernels on machines without AMX: their instructions raise SIGILL, and a handler
// decodes and executes them on tile registers of its own, as Intel's manual defines them. Memory is
// read and written by instrumented code, so that sanitizers see what the tiles touch.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/bf16_gemm.h"

namespace clearhead::testing {

// While it lives, Bf16Gemm and the functions of amx/tile_kernel.h may be called: on the silicon
// where it has usable AMX, emulated on any other x86-64. One at a time; no tile work may be under
// way when it goes. A wrong use of the tiles (no configuration, bad shapes, an unknown instruction)
// aborts with a message that starts with "amx emulator:".
class TilesForTest {
 public:
  TilesForTest();
  ~TilesForTest();
  TilesForTest(const TilesForTest&) = delete;
  TilesForTest& operator=(const TilesForTest&) = delete;

  bool emulated() const { return emulated_.has_value(); }

  // False only on CPUs that are not x86-64.
  static bool Possible();
  // Tile instructions emulated in this process until now, by all threads.
  static std::int64_t EmulatedInstructions();

 private:
  std::optional<internal::ScopedEmulatedTiles> emulated_;
};

}  // namespace clearhead::testing
