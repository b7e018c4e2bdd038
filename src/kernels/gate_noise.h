// SPDX-License-Identifier: MIT
// Noise of the attention gates: a uniform number in (0, 1) as a pure function of
// (seed, step, sample, layer, head, query, key), so that forward, backward, the reference and any
// number of threads see the same bits and nothing is stored.
//
// Each row (all but the key) is hashed once with 64 bits. The keys of a row are then hashed with
// 32-bit operations only, which every SIMD unit has; the vector version in
// gated_attention_row-inl.h gives the same bits. The rounds are multiply and xor-shift; both halves
// of the row's hash enter, one before each multiplication, so that two rows that share a half do
// not share their numbers.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace clearhead {

struct NoiseCoordinates {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t first_sample = 0;  // sequence b of the batch is sample first_sample + b
  std::uint64_t layer = 0;
};

struct NoiseRow {
  std::uint32_t low;
  std::uint32_t high;
};

inline constexpr std::uint32_t kNoiseKeyStep = 0x9e3779b9u;
inline constexpr std::uint32_t kNoiseMultiplier1 = 0x7feb352du;
inline constexpr std::uint32_t kNoiseMultiplier2 = 0x846ca68bu;

// `query` is the position of the query in its sequence, not its row in a batch of cached decoding.
constexpr NoiseRow HashNoiseRow(const NoiseCoordinates& at, std::uint64_t batch_index,
                                std::uint64_t head, std::uint64_t query) {
  const std::uint64_t hash =
      HashCoordinates(at.seed, {at.step, at.first_sample + batch_index, at.layer, head, query});
  return {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)};
}

constexpr std::uint32_t NoiseBits(NoiseRow row, std::uint32_t key) {
  std::uint32_t x = row.low + key * kNoiseKeyStep;
  x ^= x >> 16;
  x *= kNoiseMultiplier1;
  x ^= x >> 15;
  x ^= row.high;
  x *= kNoiseMultiplier2;
  x ^= x >> 16;
  return x;
}

// The middle of one of 2^23 equal cells of (0, 1): with 23 bits both u and 1-u are exact in fp32
// and never 0 or 1 (24 bits and a half would not fit the mantissa).
constexpr float GateNoise(NoiseRow row, std::uint32_t key) {
  return static_cast<float>(NoiseBits(row, key) >> 9) * 0x1p-23f + 0x1p-24f;
}

}  // namespace clearhead
