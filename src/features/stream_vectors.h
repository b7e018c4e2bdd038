// SPDX-License-Identifier: MIT
// The ends of an edge as vectors of the stream: what sources write, what targets read. Sets of
// nodes add up, so the edge between two groups is one edge between two sums.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "features/attribution_graph.h"

namespace clearhead {

struct StreamVector {
  // What is written: the layer of the MLP output (-1: the embeddings). What is read: the layer
  // whose mid the encoder reads (the number of layers: the last stream).
  std::int64_t layer = 0;
  std::int64_t position = 0;
  std::vector<float> values;  // [C]
};

// At most one for each layer and position.
using StreamVectors = std::vector<StreamVector>;

// What these nodes write together; features, errors, tokens and positions have it.
StreamVectors WrittenBy(const FrozenPrompt& prompt, const std::vector<ActiveFeature>& features,
                        const GraphNodes& nodes, std::span<const std::int64_t> sources);

// How the sum of pre-activations of these features (numbers of `features`), or a logit, reads.
StreamVectors ReadBy(const FrozenPrompt& prompt, const std::vector<ActiveFeature>& features,
                     std::span<const std::int64_t> targets);
StreamVectors ReadBy(const FrozenPrompt& prompt, const LogitTarget& target);

// rows [T,C] += those of one layer.
void AddVectors(const StreamVectors& vectors, std::int64_t layer, std::int64_t width, float* rows);

}  // namespace clearhead
