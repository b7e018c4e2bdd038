// SPDX-License-Identifier: MIT
// The nodes of an attribution graph and their numbers: first everything that has outgoing edges
// (the columns of the matrix), then the logits.
//
//   features (by layer, position, feature) | errors (by layer, position) | tokens | positions |
//   bias | logits
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "features/frozen_prompt.h"

namespace clearhead {

struct ActiveFeature {
  std::int32_t layer = 0, position = 0, feature = 0;
  float activation = 0.0f;
  auto operator<=>(const ActiveFeature&) const = default;
};

// What fires in a run, sorted.
std::vector<ActiveFeature> ActiveFeaturesOf(const FrozenPrompt& run);

enum class NodeKind { kFeature, kError, kToken, kPosition, kBias, kLogit };

struct GraphNodes {
  std::int64_t features = 0, layers = 0, length = 0, logits = 0;
  bool positions = true;  // learned positions have nodes of their own
  bool bias = true;

  std::int64_t Error(std::int64_t layer, std::int64_t position) const {
    return features + layer * length + position;
  }
  std::int64_t Token(std::int64_t position) const { return Error(layers, position); }
  std::int64_t Position(std::int64_t position) const { return Token(length) + position; }
  std::int64_t Bias() const { return Token(length) + (positions ? length : 0); }
  std::int64_t columns() const { return Bias() + (bias ? 1 : 0); }
  std::int64_t Logit(std::int64_t i) const { return columns() + i; }
  std::int64_t count() const { return columns() + logits; }

  NodeKind KindOf(std::int64_t node) const;
  // Of nodes that are neither bias nor logits: where they are. Features are asked elsewhere.
  std::int64_t LayerOfError(std::int64_t node) const { return (node - features) / length; }
  std::int64_t PositionOf(std::int64_t node) const { return (node - features) % length; }
};

}  // namespace clearhead
