// SPDX-License-Identifier: MIT
// After the last block: final norm, output matrix, loss.
//   logits[r,v] = norm(resid)[r,:] . output[v,:]
#pragma once

#include "model/activations.h"
#include "model/pass.h"

namespace clearhead {

// activations.resid_final -> activations.ln_f.
void FinalNormForward(const Pass& pass, Activations& activations);

// logits [rows, V] for `rows` rows of normalised activations [rows, C].
void LogitsForward(const Pass& pass, std::int64_t rows, const float* normalized, float* logits);

// Mean cross-entropy of activations.ln_f against targets [R] (negative: skipped; one outside the
// vocabulary is refused before anything runs, in LossBackward too), computed in
// pieces of activations.logit_rows rows; fills activations.losses. 0 when every target is skipped.
double LossForward(const Pass& pass, const std::int32_t* targets, Activations& activations);

// Backward of LogitsForward for `rows` rows from row `first` on, with activations.logits holding d
// logits: fills those rows of activations.d_ln and adds to d_output [V,C] (skipped when null).
void LogitsBackward(const Pass& pass, std::int64_t rows, std::int64_t first,
                    Activations& activations, float* d_output, PackedBf16* scratch);

// The same in one sweep with its backward: each piece of logits becomes its own gradient in place.
// Overwrites activations.d_ln with scale * d(mean loss)/d ln_f and adds to d_output [V,C] (skipped
// when null). `scale` is for gradient accumulation.
double LossBackward(const Pass& pass, const std::int32_t* targets, float scale,
                    Activations& activations, float* d_output, PackedBf16* scratch);

// activations.d_ln -> activations.d_resid (overwritten): backward of FinalNormForward.
void FinalNormBackward(const Pass& pass, Activations& activations, float* d_weight, float* d_bias);

}  // namespace clearhead
