// SPDX-License-Identifier: MIT
// What a core can do at best: the two loops that products and streams of weights are held to.
#pragma once

#include <cstdint>

namespace clearhead {

// Fused multiply-adds on registers, `rounds` times as many as the result says per round: the peak.
std::int64_t MultiplyAddsPerRound();
float MultiplyAddRounds(std::int64_t rounds);  // what came out, so that nothing is left out

// The sum of values[count], read once, as fast as they come.
float SumOf(const float* values, std::int64_t count);

}  // namespace clearhead
