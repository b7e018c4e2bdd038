// SPDX-License-Identifier: MIT
// Token and position embeddings: resid[b,t,:] = wte[id[b,t],:] + wpe[past + t,:].
#pragma once

#include "model/activations.h"
#include "model/pass.h"

namespace clearhead {

// ids [B,T] -> blocks[0].resid_pre. The caller has checked the ids.
void EmbeddingForward(const Pass& pass, const std::int32_t* ids, Activations& activations);

// Adds activations.d_resid to d_wte [V,C] and d_wpe [positions,C] (skipped when null).
void EmbeddingBackward(const Pass& pass, const std::int32_t* ids, Activations& activations,
                       float* d_wte, float* d_wpe);

}  // namespace clearhead
