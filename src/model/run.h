// SPDX-License-Identifier: MIT
// Running a model: tokens in, logits or loss out, and back.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "model/activations.h"
#include "model/pass.h"

namespace clearhead {

// Refuses an empty input, one longer than the model's positions (`past` of them used already), and
// ids outside the vocabulary, naming the first.
void CheckTokens(const ModelConfig& config, std::span<const std::int32_t> ids, std::int64_t batch,
                 std::int64_t length, std::int64_t past = 0);

// Embedding, blocks, final norm: ids [B,T] -> activations.ln_f [R,C]. With a cache, its length
// grows. Refuses, before anything runs, what CheckTokens refuses and more tokens than the cache has
// room for.
void ForwardToFinalNorm(const Pass& pass, const std::int32_t* ids, Activations& activations);

// All logits [B,T,V].
void Forward(const Pass& pass, const std::int32_t* ids, Activations& activations, float* logits);

// Told which gradients backward will not touch again: those outside the blocks but for the
// embeddings (`layer` is the number of layers), then each block's, from the last one down. Whoever
// sends gradients away can begin while the rest is computed. A tied output matrix is an embedding.
using GradientsReady = std::function<void(std::int64_t layer)>;

// From activations.d_ln = d loss / d ln_f back to the embeddings; adds to `gradients`, or only
// calls the hooks when it is null. The forward pass must have run on these activations with keep !=
// kNothing. Refuses a pass with a cache: what its earlier positions owe to the loss is not here.
void BackwardFromFinalNorm(const Pass& pass, const std::int32_t* ids, Activations& activations,
                           ModelValues* gradients, PackedBf16* scratch,
                           const GradientsReady& ready = {});

// Forward, mean cross-entropy and backward. Adds scale * gradient to `gradients` (may be null);
// returns the loss, unscaled.
double ForwardBackward(const Pass& pass, const std::int32_t* ids, const std::int32_t* targets,
                       float scale, Activations& activations, ModelValues* gradients,
                       PackedBf16* scratch, const GradientsReady& ready = {});

}  // namespace clearhead
