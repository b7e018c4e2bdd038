// SPDX-License-Identifier: MIT
// Which features fire where on one prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "features/feature_id.h"
#include "model/intervention.h"
#include "model/pass.h"

namespace clearhead {

struct FiringFeature {
  std::int64_t feature = 0;
  float value = 0.0f;
  // value times the norm of all that the feature writes: features have no common unit, what they
  // write has the stream's.
  float written = 0.0f;
};

// One token in one layer.
struct FiringCell {
  std::int64_t active = 0;               // features that fire
  std::vector<FiringFeature> strongest;  // by `written`, at most as many as asked for
};

struct PromptFeatures {
  std::int64_t length = 0, layers = 0;
  std::vector<FiringCell> cells;  // [layer, position]; nothing at position 0

  const FiringCell& At(std::int64_t layer, std::int64_t position) const {
    return cells[static_cast<std::size_t>(layer * length + position)];
  }
};

struct PromptFeaturesOptions {
  std::int64_t strongest = 5;                    // of each cell
  std::vector<Intervention> interventions = {};  // e.g. heads switched off
  bool open_gates = false;                       // run a gated model as a dense one
  std::function<void()> between_layers = {};     // may throw, to stop
};

// Position 0 is left out: what fires there says nothing about the token.
PromptFeatures FeaturesOfPrompt(const Model& model, const Transcoder& transcoder,
                                std::span<const std::int32_t> ids,
                                const PromptFeaturesOptions& options);

// The norm of what a feature writes into each layer, its own first.
std::vector<float> WrittenNorms(const Transcoder& transcoder, FeatureId id);

}  // namespace clearhead
