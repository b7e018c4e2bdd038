// SPDX-License-Identifier: MIT
// A model's matrices as linear layers, whatever the family stores: those of a block, and what one
// head has of them. Everything that looks at weights goes through here.
#pragma once

#include <vector>

#include "model/model.h"
#include "model/pass.h"

namespace clearhead {

// The layers of a block in fp32 or as stored.
BlockLayers LayersOf(const Model& model, std::int64_t layer);

// One head's matrices: x W_Q, x W_K, x W_V [C, D] with their biases, z W_O [D, C] without. Keys and
// values are those of the group the head belongs to.
struct HeadWeights {
  Linear query, key, value, output;
};
HeadWeights HeadWeightsOf(const Model& model, std::int64_t layer, std::int64_t head);

// What each head of a gated model's layer adds to its scores to make gate logits.
HeadNumbers GateBiasOf(const Model& model, std::int64_t layer);

// logits = x W_U, [C, V].
Linear OutputLayer(const Model& model);

// One token's column of W_U, [C].
std::vector<float> OutputRow(const Model& model, std::int32_t token);

Norm FinalNormOf(const Model& model);

}  // namespace clearhead
