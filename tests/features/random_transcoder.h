// SPDX-License-Identifier: MIT
// Transcoders with random weights for a model: every kind that there is, a few features of which
// fire.
#pragma once

#include <memory>
#include <vector>

#include "core/random.h"
#include "features/transcoder.h"

namespace clearhead {

struct RandomTranscoderOptions {
  TranscoderKind kind = TranscoderKind::kCrossLayer;
  FeatureActivation activation = FeatureActivation::kJumpRelu;
  Tap reads = Tap::kResidMid;
  bool skip = false;
  std::int64_t features = 31;
};

inline std::vector<RandomTranscoderOptions> RandomTranscoderKinds(const ModelConfig& config) {
  std::vector<RandomTranscoderOptions> kinds = {{},
                                                {.kind = TranscoderKind::kPerLayer, .skip = true}};
  if (config.norm_place == NormPlace::kBefore) {
    kinds.push_back({.activation = FeatureActivation::kRelu, .reads = Tap::kLn2Normalized});
    kinds.push_back({.kind = TranscoderKind::kPerLayer,
                     .activation = FeatureActivation::kTopK,
                     .reads = Tap::kLn2Normalized,
                     .skip = true});
  }
  return kinds;
}

inline Transcoder RandomTranscoder(const Model& model, const RandomTranscoderOptions& options,
                                   std::uint64_t seed = 3) {
  const std::int64_t L = model.config.layers, C = model.config.width, F = options.features;
  auto storage = std::make_shared<std::vector<std::vector<float>>>();
  RandomStream random(seed);
  const auto values = [&](std::int64_t count, double deviation) {
    std::vector<float>& list = storage->emplace_back();
    for (std::int64_t i = 0; i < count; ++i) {
      list.push_back(static_cast<float>(deviation * random.Normal()));
    }
    return list.data();
  };
  Transcoder transcoder;
  transcoder.config = {.kind = options.kind,
                       .activation = options.activation,
                       .layers = L,
                       .width = C,
                       .features = F,
                       .k = options.activation == FeatureActivation::kTopK ? 4 : 0,
                       .reads = options.reads};
  for (std::int64_t l = 0; l < L; ++l) {
    TranscoderLayer& layer = transcoder.layers.emplace_back();
    layer.encoder = MakeLinear(Weight(values(F * C, 0.4)), values(F, 0.2), C, F, Order::kOutIn);
    layer.input_scale = options.skip ? 1.0f : 0.75f;
    if (options.activation == FeatureActivation::kJumpRelu) {
      float* threshold = values(F, 0.1);
      for (std::int64_t f = 0; f < F; ++f) threshold[f] += 0.5f;
      layer.threshold = threshold;
    }
    const std::int64_t targets = LastTarget(transcoder.config, l) - l;
    const float* rows = values(F * targets * C, 0.2);
    for (std::int64_t t = 0; t < targets; ++t) {
      layer.writes.push_back({Weight(rows + t * C), targets * C, options.skip ? 1.0f : 1.25f});
    }
    layer.decoder_bias = values(C, 0.3);
    if (options.skip) {
      layer.skip = MakeLinear(Weight(values(C * C, 0.2)), nullptr, C, C, Order::kOutIn);
    }
  }
  transcoder.storage = storage;
  return transcoder;
}

}  // namespace clearhead
