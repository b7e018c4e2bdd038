// SPDX-License-Identifier: MIT
// Rotary positions (RoFormer, arXiv 2104.09864), half-split as Hugging Face stores them. For every
// head vector x of D values at position t, and i < D/2, with angle a = t * frequency_i:
//
//     x'[i]       = x[i] cos a - x[i + D/2] sin a
//     x'[i + D/2] = x[i + D/2] cos a + x[i] sin a
//
// A rotation: its backward is the rotation by -a.
#pragma once

#include <cstdint>
#include <span>

namespace clearhead {

// cos and sin [count, D/2] of positions first, first + 1, ...; angles in double.
void RotaryTable(std::span<const double> frequencies, std::int64_t first, std::int64_t count,
                 float* cos, float* sin);

struct RotaryRows {
  std::int64_t rows = 0;    // row r is at position r % length of the table
  std::int64_t length = 0;  // positions of the table
  std::int64_t heads = 0;   // vectors side by side in a row
  std::int64_t head_size = 0;
  std::int64_t stride = 0;  // between rows
};

// In place; `inverse` turns back.
void Rotate(const RotaryRows& place, const float* cos, const float* sin, bool inverse, float* x);

}  // namespace clearhead
