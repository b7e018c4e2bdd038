// SPDX-License-Identifier: MIT
// The MLP of a block, between its norm and the residual stream.
//
//   plain   out = f(in W_in + b) W_out + b                  taps pre, post
//   gated   out = (f(in W_gate + b) * (in W_in + b)) W_out + b    taps pre, pre_linear, post
#pragma once

#include "model/activations.h"
#include "model/pass.h"

namespace clearhead {

// in [R,C] -> out [R,C].
void MlpForward(const Pass& pass, std::int64_t layer, const BlockLayers& layers, const float* in,
                const BlockActivations& a, float* out);

// d_out [R,C] -> d_in [R,C], overwritten. Adds to the parameters' gradients, where there is a place
// for them.
void MlpBackward(const Pass& pass, std::int64_t layer, const BlockLayers& layers, const float* in,
                 const BlockActivations& a, Activations& activations,
                 const RoleTensors<float*>& gradients, PackedBf16* scratch, const float* d_out,
                 float* d_in);

}  // namespace clearhead
