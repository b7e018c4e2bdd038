// SPDX-License-Identifier: MIT
// One pass of a model over a batch of tokens: what the blocks need to know beside their own
// buffers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "kernels/gated_attention.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "model/hooks.h"
#include "model/model.h"
#include "model/packed_weights.h"

namespace clearhead {

// Keys and values of the positions seen so far, per layer [B, capacity, width].
struct KeyValueCache {
  KeyValueCache(const ModelConfig& config, std::int64_t batch, std::int64_t capacity);
  // The others leave the batch. `sequences` ascend.
  void KeepSequences(std::span<const std::int64_t> sequences);

  std::int64_t batch, capacity, width;
  std::int64_t length = 0;  // positions filled
  std::vector<Buffer<float>> keys, values;
};

// Bounds the slope of the square root where a head's gates are all closed.
inline constexpr double kConcentrateFloor = 1e-4;

// How a gated model's gates behave in this pass; softmax models ignore it.
struct GateRun {
  bool open = false;  // every gate open: the same weights run as a dense model
  GateMode mode = GateMode::kHard;
  NoiseCoordinates noise = {};     // of sampled gates; the layer is filled in
  const float* uniform = nullptr;  // stored noise [L,B,H,T,T] instead of hashed (tests)
  // Sum sigmoid(gate logit) per head too. Who does not read it saves a division per pair.
  bool sum_probabilities = true;
  float bias_shift = 0.0f;  // added to every gate's bias: what more or fewer open gates would do
  // Backward adds the gradient of penalty_weight * Q. With P_h the mean of sigmoid(gate logit) over
  // the sequences and causal pairs of head h of all layers, Q is the mean over h of P_h, or, where
  // `concentrate` is not 0, concentrate times the mean of sqrt(P_h + kConcentrateFloor): a head
  // with few open gates is pressed harder than one with many.
  float penalty_weight = 0.0f;
  float concentrate = 0.0f;
  // P_h [L,H] of `concentrate`, where other ranks run some of its sequences; null: this pass has
  // all.
  const double* head_means = nullptr;
};

struct Pass {
  const Model& model;
  std::int64_t batch;
  std::int64_t length;  // new tokens of each sequence
  Hooks* hooks = nullptr;
  KeyValueCache* cache = nullptr;  // attend to cached positions too, and append these
  GateRun gates = {};
  const PackedWeights* packed = nullptr;  // products with these; null: with the model's, if any

  const ModelConfig& config() const { return model.config; }
  const PackedWeights* PackedOrNull() const {
    return packed != nullptr ? packed : model.packed.get();
  }
  std::int64_t rows() const { return batch * length; }
  std::int64_t past() const { return cache == nullptr ? 0 : cache->length; }
  bool gated() const { return config().attention == AttentionKind::kGated && !gates.open; }

  bool Wants(TapId id) const { return hooks != nullptr && hooks->Wants(id); }
  bool Changes(TapId id) const { return hooks != nullptr && hooks->Changes(id); }
  bool WantsGradient(TapId id) const { return hooks != nullptr && hooks->WantsGradient(id); }
  void Visit(TapId id, const TensorView<float>& value) const {
    if (Wants(id)) hooks->Visit(id, value);
  }
  void VisitGradient(TapId id, const TensorView<float>& gradient) const {
    if (WantsGradient(id)) hooks->VisitGradient(id, gradient);
  }
  // A view of [R, width] rows as [B, T, width].
  TensorView<float> Rows(float* data, std::int64_t width) const {
    return {data, {batch, length, width}};
  }
};

// A linear layer and the roles of its parameters, under which its gradients are found.
struct BlockLinear {
  Linear linear;
  Role weight = Role::kQkvWeight, bias = Role::kQkvBias;
};

// The layers of a block, as the kernels take them.
struct BlockLayers {
  Norm attention_norm, mlp_norm, query_norm, key_norm;
  // What fills a row of qkv_width with query | key | value: one matrix, or three.
  struct Projection {
    BlockLinear layer;
    std::int64_t column;  // of its first output
  };
  std::array<Projection, 3> projections;
  int projection_count = 0;
  BlockLinear output, mlp_gate, mlp_in, mlp_out;
};
BlockLayers LayersOf(const Pass& pass, std::int64_t layer);

// Query (0), key (1) or value (2) by itself, and the column where it begins.
Linear PartOf(const BlockLayers& layers, const ModelConfig& config, int part);
std::int64_t ColumnOf(const ModelConfig& config, int part);

}  // namespace clearhead
