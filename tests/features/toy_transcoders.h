// SPDX-License-Identifier: MIT
// Transcoders made on the spot: random ones for any model, and one that is the MLPs themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/random.h"
#include "features/transcoder.h"
#include "model/pass.h"

namespace clearhead {

// Cross-layer or per-layer, JumpReLU; about a quarter of the features fire.
inline Transcoder RandomTranscoder(const ModelConfig& model, TranscoderKind kind,
                                   std::int64_t features, std::uint64_t seed) {
  Transcoder transcoder;
  transcoder.config = {
      .kind = kind,
      .activation = FeatureActivation::kJumpRelu,
      .layers = model.layers,
      .width = model.width,
      .features = features,
      .reads = model.norm_place == NormPlace::kBefore ? Tap::kLn2Normalized : Tap::kResidMid};
  const std::int64_t C = model.width, F = features;
  auto storage = std::make_shared<std::vector<std::vector<float>>>();
  RandomStream random(seed);
  const auto values = [&](std::int64_t count, double deviation, double mean = 0.0) {
    std::vector<float>& block = storage->emplace_back(static_cast<std::size_t>(count));
    for (float& value : block) value = static_cast<float>(mean + deviation * random.Normal());
    return block.data();
  };
  for (std::int64_t l = 0; l < model.layers; ++l) {
    TranscoderLayer& layer = transcoder.layers.emplace_back();
    layer.encoder = MakeLinear(Weight(values(F * C, 0.4)), values(F, 0.1), C, F, Order::kOutIn);
    layer.threshold = values(F, 0.05, 0.8);
    layer.decoder_bias = values(C, 0.1);
    const std::int64_t targets = LastTarget(transcoder.config, l) - l;
    const float* rows = values(F * targets * C, 0.1);
    for (std::int64_t t = 0; t < targets; ++t) {
      layer.writes.push_back({.rows = Weight(rows + t * C), .stride = targets * C});
    }
  }
  transcoder.storage = std::move(storage);
  return transcoder;
}

// The plain ReLU MLPs of a model as features: they fire as its neurons do. Points into the model.
inline Transcoder MlpsAsTranscoder(const Model& model) {
  Transcoder transcoder;
  transcoder.config = {.kind = TranscoderKind::kPerLayer,
                       .activation = FeatureActivation::kRelu,
                       .layers = model.config.layers,
                       .width = model.config.width,
                       .features = model.config.inner,
                       .reads = Tap::kLn2Normalized};
  for (std::int64_t l = 0; l < model.config.layers; ++l) {
    const Pass pass{.model = model, .batch = 1, .length = 1};
    const BlockLayers layers = LayersOf(pass, l);
    TranscoderLayer& layer = transcoder.layers.emplace_back();
    layer.encoder = layers.mlp_in.linear;
    layer.decoder_bias = layers.mlp_out.linear.bias;
    Check(layers.mlp_out.linear.order == Order::kInOut, "rows of the output matrix are neurons");
    layer.writes.push_back(
        {.rows = layers.mlp_out.linear.weight, .stride = layers.mlp_out.linear.stride});
  }
  return transcoder;
}

}  // namespace clearhead
