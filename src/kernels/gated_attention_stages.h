// SPDX-License-Identifier: MIT
// The gate as a stage of its own between CausalSoftmax and AttentionApply (attention_stages.h), for
// taps and interventions on the mask. Matrices are contiguous [batch, heads, queries, keys]; above
// the diagonal everything is written as 0 and never read.
//
//     mask = a (0 or 1)      probability = sigmoid(g)      weights = pattern * mask
#pragma once

#include "kernels/attention.h"
#include "kernels/gated_attention.h"

namespace clearhead {

// `mask` and `probability` may be null.
void GateMask(const AttentionShape& shape, const GateOptions& gate, const float* scores,
              float* mask, float* probability, const GateStatistics& statistics);

// `weights` may be `pattern` itself.
void ApplyGate(const AttentionShape& shape, const float* pattern, const float* mask,
               float* weights);

struct GateStage {
  const float* scores = nullptr;
  const float* pattern = nullptr;  // softmax of the scores, before the gate
  const float* mask = nullptr;     // as it was used, interventions included
};

// From dweights = dLoss/d(pattern * mask), through gate and softmax at once:
// dscores_ij = p_ij (a_ij dw_ij - sum_j p_ij a_ij dw_ij) + p_ij dw_ij sigmoid'(g_ij + n_ij)
//              + c sigmoid'(g_ij).
// `dscores` may be `dweights` itself; `bias_gradient` is as in GatedAttentionBackward.
void GateBackward(const AttentionShape& shape, const GateOptions& gate, const GateStage& stage,
                  const float* dweights, HeadNumbers penalty_gradient, float* dscores,
                  double* bias_gradient = nullptr);

}  // namespace clearhead
