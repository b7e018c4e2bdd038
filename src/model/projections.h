// SPDX-License-Identifier: MIT
// Queries, keys and values of a block: attention's input through the projections, then, where the
// family has them, clamp, norms and rotation.
//
//   raw  = in W_QKV + bias                 taps q, k, v
//   qkv  = clamp(raw), or norm(q) | norm(k) | v
//   q, k = rotated by their positions      taps rot_q, rot_k
#pragma once

#include "model/activations.h"
#include "model/pass.h"

namespace clearhead {

// in [R,C] -> a.qkv [R,P].
void QueryKeyValueForward(const Pass& pass, std::int64_t layer, const BlockLayers& layers,
                          const float* in, Activations& activations);

// Keys and values only, without taps: for positions of which nothing else is needed.
void KeyValueForward(const Pass& pass, std::int64_t layer, const BlockLayers& layers,
                     const float* in, Activations& activations);

// activations.d_qkv -> d_in [R,C], overwritten. Adds to the parameters' gradients, where there is a
// place for them.
void QueryKeyValueBackward(const Pass& pass, std::int64_t layer, const BlockLayers& layers,
                           const float* in, Activations& activations,
                           const RoleTensors<float*>& gradients, PackedBf16* scratch, float* d_in);

}  // namespace clearhead
