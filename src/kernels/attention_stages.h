// SPDX-License-Identifier: MIT
// Causal attention in stages, for taps and interventions, where the T×T values must exist. Matrices
// are contiguous [batch, heads, queries, keys]. Only causal pairs (j <= i + keys - queries) take
// part: what lies above the diagonal is written as stated and never read.
//
//     scores  = scale * q k^T          -infinity above the diagonal
//     pattern = softmax_j(scores)      0 above the diagonal; a row of -infinity gives a row of 0
//     z       = pattern v
#pragma once

#include "kernels/attention.h"

namespace clearhead {

void AttentionScores(const AttentionShape& shape, HeadRows<const float> q, HeadRows<const float> k,
                     float* scores);
// dq_i = scale * sum_j dscores_ij k_j, dk_j = scale * sum_i dscores_ij q_i. Both are overwritten.
void AttentionScoresBackward(const AttentionShape& shape, HeadRows<const float> q,
                             HeadRows<const float> k, const float* dscores, HeadRows<float> dq,
                             HeadRows<float> dk);

// `pattern` may be `scores` itself.
void CausalSoftmax(const AttentionShape& shape, const float* scores, float* pattern);
// dscores_ij = pattern_ij (dpattern_ij - sum_j pattern_ij dpattern_ij), 0 above the diagonal.
// `dscores` may be `dpattern` itself.
void CausalSoftmaxBackward(const AttentionShape& shape, const float* pattern, const float* dpattern,
                           float* dscores);

// Scores and softmax in one pass: every block of the pattern is finished in cache and written once.
void AttentionPattern(const AttentionShape& shape, HeadRows<const float> q, HeadRows<const float> k,
                      float* pattern);

void AttentionApply(const AttentionShape& shape, const float* pattern, HeadRows<const float> v,
                    HeadRows<float> z);
// dpattern_ij = dz_i . v_j (0 above the diagonal), dv_j = sum_i pattern_ij dz_i. Both are
// overwritten.
void AttentionApplyBackward(const AttentionShape& shape, const float* pattern,
                            HeadRows<const float> v, HeadRows<const float> dz, float* dpattern,
                            HeadRows<float> dv);

}  // namespace clearhead
