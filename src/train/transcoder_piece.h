// SPDX-License-Identifier: MIT
// Inside transcoder_step: the rows of a step that one thread works on.
#pragma once

#include <cstdint>
#include <vector>

#include "train/transcoder_step.h"

namespace clearhead {

inline constexpr std::int64_t kPieceRows = 256;
inline constexpr std::int64_t kAuxEvery = 8;
static_assert(kPieceRows % kAuxEvery == 0);
inline constexpr std::int64_t kSampledRows = 128;  // to find a batch's threshold
inline constexpr float kRectangle = 0.5f;          // width, in deviations of pre-activations
inline constexpr float kSlope = 4.0f;              // in tanh of the penalty

struct TranscoderStep::Piece {
  std::int64_t first = 0, rows = 0;
  std::vector<SparseRows> fired, near, aux;  // by layer; near: above the rectangle's lower end
  std::vector<float> limit;                  // [F] thresholds of products without bias
  std::vector<double> error, power;          // by layer
};

// pre[rows, F] = x W^T, without the bias.
void EncodeRows(std::int64_t rows, TableOf<const float> x, const PackedPanels& encoder, float* pre);
void AddBias(std::int64_t rows, std::int64_t F, const TranscoderTensors& w, float* pre);

// No rows at all.
void Clear(SparseRows& rows);

}  // namespace clearhead
