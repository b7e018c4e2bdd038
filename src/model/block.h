// SPDX-License-Identifier: MIT
// THE MAP: one transformer block, forward and backward.
//
//   x    = resid_pre
//   mid  = x   + attention(norm(x)) W_O     resid_mid
//   post = mid + mlp(norm(mid))             resid_post
//
// or, in families whose norms stand behind the halves,
//   mid  = x   + norm(attention(x) W_O)
//   post = mid + norm(mlp(mid))
#pragma once

#include "model/activations.h"
#include "model/pass.h"

namespace clearhead {

// Reads blocks[layer].resid_pre, writes resid_post and the block's buffers.
void BlockForward(const Pass& pass, std::int64_t layer, Activations& activations);

// Its two halves, for runs that start inside a block: resid_pre -> resid_mid -> resid_post.
void AttentionHalfForward(const Pass& pass, std::int64_t layer, Activations& activations);
void MlpHalfForward(const Pass& pass, std::int64_t layer, Activations& activations);

// The end of the first half, for runs that start with known heads' outputs: a.z -> resid_mid.
void HeadsToStream(const Pass& pass, std::int64_t layer, Activations& activations);

// Only the keys and values of resid_pre, into the pass's cache: all that the rows of earlier
// positions are needed for in a last block whose last position alone is read. No taps.
void AppendKeysAndValues(const Pass& pass, std::int64_t layer, Activations& activations);

// activations.d_resid: in, d loss / d resid_post; out, d loss / d resid_pre. Adds to the gradients
// of the block's parameters, or skips them when `gradients` is null. `scratch` holds packed
// operands in bf16.
void BlockBackward(const Pass& pass, std::int64_t layer, Activations& activations,
                   const RoleTensors<float*>* gradients, PackedBf16* scratch);

}  // namespace clearhead
