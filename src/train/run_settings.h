// SPDX-License-Identifier: MIT
// What a checkpoint remembers of a run's settings, so that a resumed one can be held to them.
#pragma once

#include <cstdint>
#include <span>

#include "core/json.h"
#include "core/random.h"
#include "model/fingerprint.h"
#include "train/step.h"

namespace clearhead {

inline std::uint64_t TokensFingerprint(std::span<const std::int32_t> tokens) {
  std::uint64_t hash = tokens.size();
  for (const std::int32_t token : tokens)
    hash = Mix64(hash ^ static_cast<std::uint64_t>(token)) + 1;
  return hash;
}

// Model, text and shape of the step; each kind of run adds its own. How many ranks share a step is
// not among them: a run may go on with others.
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
