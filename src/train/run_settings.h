// SPDX-License-Identifier: MIT
// What a checkpoint remembers of a run's settings, so that a resumed one can be held to them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "core/buffer.h"
#include "core/json.h"
#include "core/random.h"
#include "model/model.h"
#include "train/step.h"

namespace clearhead {

inline std::uint64_t TokensFingerprint(std::span<const std::int32_t> tokens) {
  std::uint64_t hash = tokens.size();
  for (const std::int32_t token : tokens)
    hash = Mix64(hash ^ static_cast<std::uint64_t>(token)) + 1;
  return hash;
}

inline std::uint64_t WeightsFingerprint(const Model& model) {
  std::uint64_t hash = 0;
  ModelWeights weights = model.weights;
  Buffer<float> values(1 << 16);  // a piece at a time: weights may be stored in 16 bits
  VisitParameters(model.config, weights, [&](const ParameterSpec& spec, const Weight& weight) {
    for (std::int64_t first = 0; first < spec.shape.size(); first += values.size()) {
      const std::int64_t count = std::min(values.size(), spec.shape.size() - first);
      weight.CopyTo(first, count, values.data());
      for (std::int64_t i = 0; i < count; ++i) {
        hash = Mix64(hash ^ std::bit_cast<std::uint32_t>(values[i])) + 1;
      }
    }
  });
  return hash;
}

// Model, text and shape of the step; each kind of run adds its own.
inline Json StepSettings(const ModelConfig& config, std::span<const std::int32_t> train,
                         const StepShape& shape) {
  return {{"model", ToJson(config, "float32")},
          {"tokens", train.size()},
          {"text_hash", TokensFingerprint(train)},
          {"batch", shape.batch},
          {"context", shape.context},
          {"accumulation", shape.accumulation},
          {"precision", shape.bf16 ? "bf16" : "fp32"}};
}

}  // namespace clearhead
