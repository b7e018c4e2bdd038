// SPDX-License-Identifier: MIT
// What the machine gives: the limits that every other figure is held to.
#pragma once

#include <cstdint>
#include <span>

#include "core/buffer.h"
#include "measure/best_seconds.h"

namespace clearhead {

// FLOP/s of fused multiply-adds on registers, on all threads: no product can be faster.
double MultiplyAddSpeed(const Budget& budget);

// FLOP/s of a product of GPT-2's own shape, 4096 x 768 x 3072.
double SgemmSpeed(const Budget& budget);
// The same in bf16 on tiles; only where Bf16GemmAvailable().
double Bf16Speed(const Budget& budget);

// Reads every value once, on all threads: sums[r] = sum of row r of [rows, kReadWidth].
inline constexpr std::int64_t kReadWidth = 4096;
void ReadOnce(std::int64_t rows, const float* values, float* sums);

// Bytes per second of the above. `values` should be far larger than the caches.
double ReadSpeed(std::span<const float> values, const Budget& budget);

}  // namespace clearhead
