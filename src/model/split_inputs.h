// SPDX-License-Identifier: MIT
// The taps hook_q_input, hook_k_input, hook_v_input: resid_pre as each head's queries, keys and
// values see it, [B,T,H,C] (keys and values: as many heads as there are of them). In the model all
// heads read one stream; these split it, so that circuits can ask what one head's queries owe to
// it, and give one head's queries another input than its keys.
#pragma once

#include "model/activations.h"
#include "model/pass.h"

namespace clearhead {

// After qkv was computed from the common input: shows the split inputs and, where a hook changed
// one, computes its share of qkv anew.
void VisitSplitInputs(const Pass& pass, std::int64_t layer, const BlockLayers& layers,
                      const BlockActivations& a);

// d loss / d split input, from the gradients d_raw of the projections' outputs. Fails where a hook
// changed a split input.
void VisitSplitInputGradients(const Pass& pass, std::int64_t layer, const BlockLayers& layers,
                              const BlockActivations& a, const float* d_raw);

}  // namespace clearhead
