// SPDX-License-Identifier: MIT
// The attention of a block between its two linear layers: q, k, v rows to z rows. Fused when nobody
// looks; in stages, with the T×T matrices in the open, where a hook wants one of them.
#pragma once

#include "model/activations.h"
#include "model/pass.h"

namespace clearhead {

// a.qkv [R,P] -> a.z [R,HD], a.log_sum_exp. Gate statistics go into `activations`.
void AttentionLayerForward(const Pass& pass, std::int64_t layer, Activations& activations);

// Keys and values of a.qkv into the pass's cache, if it has one, behind the positions it holds.
void AppendToCache(const Pass& pass, std::int64_t layer, Activations& activations);

// d_z [R,HD] -> d_qkv [R,P], overwritten; d_gate_bias [H], added to (skipped when null).
void AttentionLayerBackward(const Pass& pass, std::int64_t layer, Activations& activations,
                            float* d_gate_bias);

}  // namespace clearhead
