// SPDX-License-Identifier: MIT
// Token and, where they are learned, position embeddings:
//   resid[b,t,:] = tokens[id[b,t],:] + positions[past + t,:]
#pragma once

#include "model/activations.h"
#include "model/pass.h"

namespace clearhead {

// ids [B,T] -> blocks[0].resid_pre. The caller has checked the ids.
void EmbeddingForward(const Pass& pass, const std::int32_t* ids, Activations& activations);

// Adds activations.d_resid to d_tokens [V,C] and d_positions [positions,C] (each skipped when
// null).
void EmbeddingBackward(const Pass& pass, const std::int32_t* ids, Activations& activations,
                       float* d_tokens, float* d_positions);

}  // namespace clearhead
