// SPDX-License-Identifier: MIT
// A transcoder in training: its tensors in one block, and the units in which it is trained.
//
// Inputs are centred and divided dimension by dimension, outputs centred and divided by one number
// per layer: a few dimensions of some models have thirty times the spread of the median one, and
// with one number for all of them most features of a layer die (measured on `tale`: 68 %). The
// saved weights have all of it folded in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "features/transcoder.h"

namespace clearhead {

struct TranscoderShape {
  TranscoderKind kind = TranscoderKind::kCrossLayer;
  std::int64_t layers = 0, width = 0, features = 0;
  bool thresholds = false;  // trained ones, a feature each

  // Layers that a feature of `layer` writes into.
  std::int64_t targets(std::int64_t layer) const {
    return kind == TranscoderKind::kCrossLayer ? layers - layer : 1;
  }
};

// Tensors of one layer in a block of values, gradients or moments.
struct TranscoderTensors {
  float* encoder = nullptr;       // [F,C]
  float* encoder_bias = nullptr;  // [F]
  // [F, targets, C]: one feature that fires is one contiguous read.
  float* decoder = nullptr;
  float* decoder_bias = nullptr;  // [C]
  // [F] threshold = exp(kThresholdRate p): with Adam p moves by the learning rate, so the
  // logarithm of the threshold moves at five times that. Null unless trained.
  float* threshold = nullptr;
};
inline constexpr float kThresholdRate = 5.0f;

std::int64_t ParameterCount(const TranscoderShape& shape);
std::vector<TranscoderTensors> Bind(const TranscoderShape& shape, float* block);

// Encoder rows of length 1 in random directions, everything else 0: pre-activations then have about
// unit variance, and a feature writes nothing before it has learned what.
void FillStart(const TranscoderShape& shape, std::uint64_t seed, float* block);

// Of one layer: x = mean_in + deviation_in * (what is trained on), y = mean_out + scale_out *
// (...).
struct LayerUnits {
  std::vector<float> mean_in, deviation_in, mean_out;
  float scale_out = 1.0f;
};

// The transcoder in the model's own units, with memory of its own; `thresholds[l][f]`.
Transcoder FoldUnits(const TranscoderShape& shape, const std::vector<TranscoderTensors>& trained,
                     const std::vector<LayerUnits>& units,
                     const std::vector<std::vector<float>>& thresholds,
                     const TranscoderConfig& config);

}  // namespace clearhead
