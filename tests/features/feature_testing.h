// SPDX-License-Identifier: MIT
// Random transcoders in memory, and texts in which tokens follow one another unevenly.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/random.h"
#include "features/transcoder.h"
#include "model/fingerprint.h"
#include "model/model_testing.h"

namespace clearhead {

struct RandomTranscoderShape {
  TranscoderKind kind = TranscoderKind::kCrossLayer;
  FeatureActivation activation = FeatureActivation::kJumpRelu;
  std::int64_t features = 37;
  float threshold = 2.0f;  // pre-activations have about the spread of the input's norm
};

// Features of a model: encoder and decoder rows from a normal distribution, thresholds such that
// some features fire often, some rarely and some never.
inline Transcoder RandomTranscoder(const Model& model, const RandomTranscoderShape& shape = {},
                                   std::uint64_t seed = 5) {
  const ModelConfig& config = model.config;
  const std::int64_t L = config.layers, C = config.width, F = shape.features;
  Transcoder transcoder;
  transcoder.config = {
      .kind = shape.kind,
      .activation = shape.activation,
      .layers = L,
      .width = C,
      .features = F,
      .k = shape.activation == FeatureActivation::kTopK ? 5 : 0,
      .reads = config.norm_place == NormPlace::kBefore ? Tap::kLn2Normalized : Tap::kResidMid,
      .model_hash = fmt::format("{:016x}", WeightsFingerprint(model))};
  RandomStream random(seed);
  auto storage = std::make_shared<std::vector<std::vector<float>>>();
  const auto values = [&](std::int64_t count, double deviation) {
    std::vector<float>& list = storage->emplace_back();
    for (std::int64_t i = 0; i < count; ++i) {
      list.push_back(static_cast<float>(deviation * random.Normal()));
    }
    return list.data();
  };
  for (std::int64_t l = 0; l < L; ++l) {
    TranscoderLayer& layer = transcoder.layers.emplace_back();
    const std::int64_t targets = LastTarget(transcoder.config, l) - l;
    layer.encoder = MakeLinear(Weight(values(F * C, 1.0 / std::sqrt(static_cast<double>(C)))),
                               values(F, 0.1), C, F, Order::kOutIn);
    if (shape.activation == FeatureActivation::kJumpRelu) {
      float* threshold = values(F, 0.0);
      for (std::int64_t f = 0; f < F; ++f) {
        threshold[f] = shape.threshold * static_cast<float>(f) / static_cast<float>(F);
      }
      threshold[F - 1] = 1e9f;  // never fires
      layer.threshold = threshold;
    }
    float* decoder = values(F * targets * C, 0.3);
    for (std::int64_t t = 0; t < targets; ++t) {
      layer.writes.push_back({.rows = Weight(decoder + t * C), .stride = targets * C});
    }
    layer.decoder_bias = values(C, 0.1);
  }
  transcoder.storage = storage;
  return transcoder;
}

// Ids in which some tokens are common and pairs recur.
inline std::vector<std::int32_t> UnevenText(std::int64_t vocabulary, std::int64_t count,
                                            std::uint64_t seed) {
  RandomStream random(seed);
  std::vector<std::int32_t> ids = {0};
  while (static_cast<std::int64_t>(ids.size()) < count) {
    const double u = random.Uniform();
    const bool follows = random.Uniform() < 0.5;
    ids.push_back(follows ? (ids.back() * 7 + 3) % static_cast<std::int32_t>(vocabulary)
                          : static_cast<std::int32_t>(u * u * static_cast<double>(vocabulary)));
  }
  return ids;
}

}  // namespace clearhead
